"""DynamicMeans: equal to its twin on streams, worked examples, state, records, bad input."""

import itertools
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
import twins.dynamic
import twins.exact
import twins.penalty
from helpers import assert_refuses, never_rises, seeds, state
from problems import blobs
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import check_random_state

from smallvar import (
    BregmanDPMeans,
    DPMeans,
    DynamicMeans,
    KernelDynamicMeans,
    MiniBatchDPMeans,
    SpectralDynamicMeans,
    SphericalDPMeans,
    UnclearNumberWarning,
    cluster_path,
    tune_dynamic,
)
from smallvar._centers import minibatch
from smallvar._core.row_names import read_times
from smallvar._selection.path import find_path
from smallvar._time import dynamic, tune
from smallvar._time.rule_step import Rule, RuleStep

TRACKERS = DynamicMeans, KernelDynamicMeans, SpectralDynamicMeans
STATE = ("cluster_centers_", "cluster_ids_", "weights_", "ages_", "labels_", "lam_", "q_", "tau_")
RECORDS = ("times_", "tracks_", "births_", "deaths_", "revivals_", "step_objectives_")


def line(*points):
    """Points of the line as a column."""
    return np.array(points, dtype=float).reshape(-1, 1)


NOBODY = np.zeros((0, 1))


# Streams -----------------------------------------------------------------------------------


def penalties(seed, lam):
    """Parameters of the stream of a seed."""
    return (
        {},
        {"t_q": 3, "k_tau": 1.05},
        {"t_q": np.inf, "k_tau": 1.2},
        {"q": 0, "tau": 0.0},
        {"q": 0.3 * lam, "tau": 0.5},
        {"t_q": 1.5, "k_tau": 1},
        {"t_q": 4.0, "k_tau": 3.0},
    )[seed % 7]


# penalties for ``in_domain``
LAM = {"kl": 9.0, "itakura_saito": 1.0, "logistic": 0.5, "directions": 0.1}
KINDS = "squared_euclidean", *LAM
each_kind_of_center = pytest.mark.parametrize("kind", KINDS)
each_kind = pytest.mark.parametrize("kind", LAM)


def rule(kind):
    """The parameters that make a DynamicMeans of this kind."""
    return {"directions": True} if kind == "directions" else {"divergence": kind}


def in_domain(kind, U):
    """Numbers from 0 to 1 brought to the domain, some to its border."""
    if kind == "squared_euclidean":
        return U
    if kind == "directions":
        U = U - 0.4
        return U / np.sqrt(np.square(U).sum(axis=1, keepdims=True))
    if kind == "itakura_saito":
        return np.abs(U) + 0.05
    return np.floor(20 * np.square(U)) if kind == "kl" else np.clip(2 * U - 0.5, 0.0, 1.0)


def moving(rng, d, k, steps, *, most=6, motion=0.05, death=0.08, hidden=0.25, empty=0.08, sd=0.05):
    """Batches around Gaussians that move, hide for a while, die, and are replaced by others."""
    centers, batches, truths, serial = rng.random((k, d)), [], [], np.arange(k)
    for _ in range(steps):
        centers = centers + motion * rng.normal(size=(k, d))
        died = rng.random(k) < death
        centers[died] = rng.random((died.sum(), d))
        serial[died] = serial.max() + 1 + np.arange(died.sum())
        seen = np.flatnonzero((rng.random(k) >= hidden) & (rng.random() >= empty))
        who = rng.permutation(np.repeat(seen, rng.integers(1, most + 1, size=len(seen))))
        batches.append(centers[who] + sd * rng.normal(size=(len(who), d)))
        truths.append(serial[who])
    return batches, truths


def follow(twin, model, batches, n_init, generator, rounding, weights=None):
    """Fit model and twin step by step, and compare all attributes; returns counts of events."""
    events = {"births": 0, "deaths": 0, "revivals": 0, "empty": 0}
    for Y, weight in zip(batches, weights or [None] * len(batches), strict=True):
        before = (twin.phi, twin.v, twin.ages, twin.ids)
        model.partial_fit(Y, sample_weight=weight)
        if len(Y):
            orders = [generator.permutation(len(Y)) if i else None for i in range(n_init)]
            starts = twin.starts(Y, orders, weight)
            least = min(start.objective for start in starts)
            # two starts that come to the same clusters differ by rounding, and in new numbers
            step = next(
                start
                for start in starts
                if start.objective <= least * (1 + 1e-9)
                and np.array_equal(twin.ids_after(start)[start.labels], model.labels_)
                and start.n_iter == model.n_iter_
            )
            np.testing.assert_allclose(model.objective_, step.objective, rtol=1e-9)
            direct = direct_objective(Y, model, before, weight)
            np.testing.assert_allclose(model.objective_, direct, rtol=1e-9)
            assert never_rises(step.path)
        else:
            step = None
            assert model.objective_ == 0 and model.n_iter_ == 0 and model.labels_.shape == (0,)
        born, died, revived, *_ = twin.take(step)
        assert model.cluster_ids_.tolist() == twin.ids.tolist()
        assert model.ages_.tolist() == twin.ages.tolist()
        assert model.n_clusters_ == len(twin.ids)
        np.testing.assert_allclose(model.weights_, twin.v, rtol=1e-12)
        np.testing.assert_allclose(model.cluster_centers_, twin.phi, rtol=0, atol=rounding)
        for name, value in zip(
            events, (len(born), len(died), len(revived), len(Y) == 0), strict=True
        ):
            events[name] += value
    return events


def direct_objective(Y, model, before, weight=None):
    """The objective of a step from labels and new centers, term by term."""
    phi, v, ages, ids = before
    name = "directions" if model.directions else model.divergence
    Y, total = np.asarray(Y, dtype=float), 0.0
    w = np.ones(len(Y)) if weight is None else weight
    for k in np.unique(model.labels_):
        mine, own = Y[model.labels_ == k], w[model.labels_ == k]
        if k in model.cluster_ids_:
            theta = model.cluster_centers_[model.cluster_ids_ == k][0]
        else:  # a cluster that dies in its own step: its mean
            theta = np.average(mine, axis=0, weights=own)
        if k in ids:
            (j,) = np.flatnonzero(ids == k)
            gamma = 1 / (1 / v[j] + model.tau_ * ages[j])
            total += model.q_ * ages[j] + gamma * twins.dynamic.difference(phi[j], theta, name)
        else:
            total += model.lam_
        total += own @ twins.dynamic.differences(mine, theta[None], name)[:, 0]
    return total


def stream_of(kind, seed):
    """Batches of a seed, in the domain of the kind, the arguments of DynamicMeans, and its twin."""
    rng = np.random.default_rng(seed)
    d, lam = 1 + seed % 3, (0.02, 0.05, 0.2)[seed // 7 % 3]
    batches, _ = moving(rng, d, int(rng.integers(1, 6)), 9)
    if kind in LAM:
        lam, batches = 20 * lam * LAM[kind], [in_domain(kind, Y) for Y in batches]
    elif seed % 10 == 8:  # scale
        batches, lam = [1e-3 * Y for Y in batches], 1e-6 * lam
    if seed % 5 == 1:
        batches = [Y.astype(np.float32) for Y in batches]
    options = penalties(seed, lam)
    twin = twins.dynamic.Stream(d, lam, name=kind, **options)
    options |= {"lam": lam, "n_init": 3 if seed % 4 == 0 else 1, "random_state": seed}
    return batches, DynamicMeans(n_threads=1 + seed % 3, **options, **rule(kind)), twin, rng


@each_kind_of_center
@seeds(lambda kind: 42 if kind in LAM else 126)
def test_stream_equals_twin(kind, seed):
    """Labels, persistent numbers, centers, weights, ages, objectives, after every step."""
    batches, model, twin, _ = stream_of(kind, seed)
    rounding = 1e-12
    if seed % 5 == 2:
        batches = [np.asfortranarray(Y) for Y in batches]
    if seed % 10 == 3 and kind not in LAM:
        batches, rounding = [Y + 1e5 for Y in batches], 1e-8
    follow(twin, model, batches, model.n_init, check_random_state(seed), rounding)
    assert (model.q_, model.tau_) == (twin.q, twin.tau)
    assert model.n_steps_ == len(batches)
    assert np.array_equal(model.cluster_ids_, np.sort(model.cluster_ids_))


def test_streams_show_everything():
    """With each parameter set there are births, deaths, revivals and empty batches."""
    for seed in range(7):
        rng = np.random.default_rng([seed, 1])
        batches, _ = moving(rng, 2, 4, 30, most=3)
        options = penalties(seed, 0.05)
        events = follow(
            twins.dynamic.Stream(2, 0.05, **options),
            DynamicMeans(lam=0.05, n_init=1, **options),
            batches,
            1,
            None,
            1e-12,
        )
        assert events["births"] > 2 and events["empty"] > 0
        # t_q = 1.5: nothing lives unseen
        assert (events["revivals"] > 0) == (seed != 5)
        assert (events["deaths"] > 0) == (seed not in (2, 3))  # Q = 0: for ever


@pytest.mark.parametrize("d", [2, 9])
def test_large_batches_equal_twin(d):
    """Batches of more rows than a chunk equal the twin."""
    rng = np.random.default_rng(d)
    centers = 10 * rng.random((8, d))
    batches = []
    for seen in (6, 8):
        centers += 0.1 * rng.normal(size=centers.shape)
        who = rng.integers(seen, size=900)
        batches.append(centers[who] + 0.1 * rng.normal(size=(900, d)))
    model = DynamicMeans(lam=1.0, n_init=1, n_threads=2)
    follow(twins.dynamic.Stream(d, 1.0), model, batches, 1, None, 1e-11)


@seeds(6)
def test_farthest_first_is_that_of_the_first_rows(seed):
    """The rule is applied to the first batch with rows, for a guess cut to its size; then kept."""
    rng = np.random.default_rng(seed)
    first, k = rng.random((4 + 3 * seed, 2)), 8 if seed % 2 else 3
    model = DynamicMeans(lam="farthest-first", guess=k).partial_fit(np.zeros((0, 2)))
    assert not hasattr(model, "lam_") and model.n_clusters_ == 0
    model.partial_fit(first)
    expected = twins.penalty.farthest_first(first, min(k, len(first)))
    np.testing.assert_allclose(model.lam_, expected, rtol=1e-12)
    np.testing.assert_allclose([model.q_, model.tau_], [expected / 6.8, 1.068 / 5.8])
    model.partial_fit(100 * rng.random((20, 2)))
    np.testing.assert_allclose(model.lam_, expected, rtol=1e-12)
    assert model.n_steps_ == 3


@seeds(4)
def test_auto_is_that_of_the_first_rows(seed):
    """Automatic lam is farthest-first for the number of the path and for one more; then kept."""
    rng = np.random.default_rng(seed)
    first = blobs(rng, 60, 2, 4, spread=0.02)
    weight = None if seed % 2 else rng.integers(1, 4, size=60).astype(float)
    model = DynamicMeans(random_state=seed).partial_fit(np.zeros((0, 2)))
    model.partial_fit(first, sample_weight=weight)
    path = cluster_path(first, sample_weight=weight, random_state=seed)
    assert model.path_.best == path.best == model.n_clusters_ > 1
    last, next_ = (twins.penalty.farthest_first(first, path.best + more) for more in (0, 1))
    expected = np.sqrt(last * next_) * (1 if weight is None else weight.mean())
    assert next_ < last
    np.testing.assert_allclose(model.lam_, expected, rtol=1e-9)
    model.partial_fit(100 * rng.random((20, 2)))
    np.testing.assert_allclose(model.lam_, expected, rtol=1e-9)


THREE = make_blobs([40] * 3, centers=[[0, 0], [10, 0], [0, 10]], random_state=0)
ALONE = THREE[0][THREE[1] == 0]
GRID = np.argwhere(np.ones((6, 6))).astype(float)


@pytest.mark.parametrize(("weight", "unit"), [(None, 1), (np.full(40, 3.0), 3)])
@pytest.mark.parametrize("first", [ALONE, GRID, ALONE[:5], ALONE[:2]])
def test_auto_of_a_single_cluster(weight, unit, first):
    """Four times the largest squared distance within it, at which no row of it opens another."""
    weight = None if weight is None else weight[: len(first)]
    model = DynamicMeans(random_state=0).partial_fit(first, sample_weight=weight)
    assert model.path_.best == model.n_clusters_ == 1
    within = np.sum((first - first.mean(axis=0)) ** 2, axis=1).max()
    np.testing.assert_allclose(model.lam_, 4 * unit * within, rtol=1e-9)
    batches = MiniBatchDPMeans(random_state=0).partial_fit(first, sample_weight=weight)
    np.testing.assert_allclose(model.lam_, batches.lam_, rtol=1e-12)


FIRST = {
    "a cluster": [ALONE],
    "its parts": [ALONE[:20], ALONE[20:]],
    "nothing": [ALONE[:0], ALONE[:0], ALONE],
    "a row": [ALONE[:1], ALONE],
    "a row, then all": [ALONE[:1]],
    "two rows": [ALONE[:2], ALONE],
    "five rows": [ALONE[:5], ALONE],
    "equal rows": [np.repeat(ALONE[:1], 9, axis=0), ALONE],
    "equal rows twice": [np.repeat(ALONE[:1], 9, axis=0)] * 2,
    "rows of two clusters": [THREE[0][[0, 1]]],
}


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e5])
@pytest.mark.parametrize("case", FIRST)
def test_penalty_of_the_first_batch_with_several_clusters(case, scale):
    """Before it the penalty rests on a single cluster, and no batch of it opens another."""
    X, truth = scale * THREE[0], THREE[1]
    known = cluster_path(X, random_state=0)
    streams = [DynamicMeans(random_state=0), MiniBatchDPMeans(random_state=0)]
    streams.append(DynamicMeans(random_state=0, record=True))
    for model in streams:
        for batch in FIRST[case]:
            if len(batch) or isinstance(model, DynamicMeans):
                model.partial_fit(scale * batch)
                assert model.n_clusters_ == (len(batch) > 0)
        model = pickle.loads(pickle.dumps(model)).partial_fit(X)
        assert model.n_clusters_ == model.path_.best == 3
        assert len(set(zip(truth, model.labels_, strict=True))) == 3
        # from here on it stays
        lam, path = model.lam_, model.path_
        assert path.criterion.tobytes() == known.criterion.tobytes()
        model.partial_fit(100 * X).partial_fit(X)
        assert (model.lam_, model.path_) == (lam, path)
    parts = [scale * batch for batch in FIRST[case]]
    times = np.repeat(np.arange(len(parts) + 1), [*map(len, parts), len(X)])
    whole = DynamicMeans(random_state=0).fit(np.vstack([*parts, X]), times=times)
    np.testing.assert_allclose(whole.lam_, lam, rtol=1e-12)
    assert len(whole.tracks_) == 3


def test_penalties_go_together_when_chosen_again():
    weight = np.tile([1.0, 3.0], 60)
    model = DynamicMeans(random_state=0).partial_fit(ALONE[:1], sample_weight=[5.0])
    assert model.lam_ == 5.0  # the mean weight, where there is no distance
    model.partial_fit(THREE[0], sample_weight=weight)
    expected = DynamicMeans(random_state=0).partial_fit(THREE[0], sample_weight=weight)
    for name in ("lam_", "q_", "tau_"):
        np.testing.assert_allclose(getattr(model, name), getattr(expected, name))
    same = DynamicMeans(random_state=0, q=0.0, tau=0.0).partial_fit(ALONE).partial_fit(THREE[0])
    assert (same.q_, same.tau_, same.n_clusters_) == (0.0, 0.0, 3)


@pytest.mark.parametrize("kind", TRACKERS)
@pytest.mark.parametrize("equal", [1, 9])
def test_farthest_first_after_rows_without_distances(kind, equal):
    """The rule goes by the first batch that has distances; so does gamma."""
    X = 1e-3 * THREE[0]
    options = {"lam": "farthest-first"} | (
        {"guess": 7} if kind is DynamicMeans and equal > 1 else {}
    )
    model, expected = kind(**options, random_state=0), kind(**options, random_state=0)
    model.partial_fit(np.repeat(X[:1], equal, axis=0))
    assert (model.lam_, model.n_clusters_) == (1.0, 1)
    model.partial_fit(X)
    expected.partial_fit(X)
    for name in ("lam_", "q_", "tau_", *(("gamma_",) if kind is not DynamicMeans else ())):
        np.testing.assert_allclose(getattr(model, name), getattr(expected, name))
    model.partial_fit(X[:3] + 1.0)
    np.testing.assert_allclose(model.lam_, expected.lam_)


def test_a_stream_of_one_cluster_has_few_paths():
    """Those of its first batches, and of ever fewer later ones: a step takes no longer for them."""
    rng, paths = np.random.default_rng(0), []
    X = rng.uniform(-1, 1, size=(63, 20, 2))

    def found(*args, **kwargs):
        paths.append(number)
        return find_path(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamic, "find_path", found)
        patch.setattr(minibatch, "find_path", found)
        for model in (DynamicMeans(random_state=0), MiniBatchDPMeans(random_state=0)):
            paths.clear()
            for number in range(63):
                model.partial_fit(X[number])
                assert model.n_clusters_ == 1
            assert paths == [*range(17), 32]


@pytest.mark.parametrize("kind", [DynamicMeans, MiniBatchDPMeans])
def test_penalty_of_a_batch_that_opens_no_cluster(kind):
    """The clusters of a later batch are within the reach of the first one, and are found."""
    rng = np.random.default_rng(0)
    truth = np.arange(40) % 2
    later = 0.2 * rng.normal(size=(40, 2)) + 3.0 * truth[:, None]
    model = kind(random_state=0).partial_fit(2.0 * rng.normal(size=(40, 2)))
    assert model.n_clusters_ == 1
    assert ((later - model.cluster_centers_[0]) ** 2).sum(axis=1).max() < model.lam_
    model.partial_fit(later)
    assert model.path_.best == len(set(zip(truth, model.labels_, strict=True))) == 2


def test_unclear_single_clusters_are_told():
    """As by other estimators, once: after a fit, or the batch that the penalty is from."""
    rng = np.random.default_rng(0)
    few = rng.normal(size=(15, 2))
    for fitting in (
        lambda: DynamicMeans(random_state=0).fit(
            np.tile(few, (5, 1)), times=np.repeat(range(5), 15)
        ),
        lambda: DynamicMeans(random_state=0).partial_fit(few),
    ):
        with pytest.warns(UnclearNumberWarning, match="the number of clusters"):
            model = fitting()
        assert model.path_.best == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(few)
        DynamicMeans(random_state=0).fit(np.vstack([few, THREE[0]]), times=[0] * 15 + [1] * 120)
        DynamicMeans(lam=1.0).fit(few)


def test_step_that_fails_keeps_the_penalty(monkeypatch):
    """Also where the step has chosen it again."""
    model = DynamicMeans(random_state=np.random.RandomState(0)).partial_fit(ALONE)

    def failing(self, *args):
        assert self.path_.best == 3
        raise KeyboardInterrupt

    monkeypatch.setattr(DynamicMeans, "_cluster", failing)
    assert_refuses(model, lambda m: m.partial_fit(THREE[0]), KeyboardInterrupt)


def test_auto_finds_the_tracks():
    """Well separated clusters that move, without an argument."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        places = np.array([[0, 0], [4, 0], [0, 4], [4, 4], [8, 0]], dtype=float)
        X, truth, times = [], [], []
        for t in range(12):
            places += 0.1 * rng.normal(size=places.shape)
            who = np.repeat(np.flatnonzero((rng.random(5) < 0.8) | (t == 0)), 12)
            X.append(places[who] + 0.2 * rng.normal(size=(len(who), 2)))
            truth.append(who)
            times.append(np.full(len(who), t))
        X, truth, times = map(np.concatenate, (X, truth, times))
        model = DynamicMeans(random_state=0).fit(X, times=times)
        assert len(model.tracks_) == len(set(zip(truth, model.labels_, strict=True))) == 5


def storms(rng):
    """Six-hourly positions of 29 storms of three years, and their times, in hours."""
    X, times = [], []
    for storm in range(29):
        n, begin = rng.integers(8, 50), rng.integers(0, 480) + 1460 * (storm % 3)
        speed = rng.normal(0.0, 0.1, (n, 2)).cumsum(axis=0) - [0.8, -0.3]
        X.append(rng.uniform([-95, 10], [-20, 25]) + speed.cumsum(axis=0))
        times.append(6 * np.arange(begin, begin + n))
    return np.concatenate(X), np.concatenate(times)


def test_defaults_say_when_they_do_not_suit_a_record():
    """Steps of unequal length with a row a cluster, and nothing given."""
    X, times = storms(np.random.default_rng(0))
    dates = np.datetime64("2020-01-01") + times.astype("m8[h]")
    for when in (times, times / 24.0, dates):
        with pytest.warns(UserWarning, match="apart.*tune_dynamic finds lam.* and step counts"):
            DynamicMeans(random_state=0).fit(X, times=when)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DynamicMeans(random_state=0).fit(X, times=times, step=6)
        DynamicMeans(lam=25, t_q=8, k_tau=1.1).fit(X, times=times)
        DynamicMeans(random_state=0).fit(X, times=np.unique(times, return_inverse=True)[1])
        DynamicMeans(random_state=0).fit(X.repeat(3, axis=0), times=times.repeat(3))


@each_kind_of_center
@seeds(lambda kind: 21 if kind in LAM else 70)
def test_weighted_stream_equals_twin(kind, seed):
    """Costs, revivals, means, objective and the weights of clusters, of weighted points."""
    batches, model, twin, rng = stream_of(kind, seed)
    weights = [rng.gamma(0.7, 1.5, size=len(Y)) + 1e-3 for Y in batches]
    if seed % 2:
        weights = [np.ceil(weight) for weight in weights]
    follow(twin, model, batches, model.n_init, check_random_state(seed), 1e-11, weights)


def test_weighted_revival():
    """phi = 0, v = 1; 3 of weight 2 costs 2 / 3 * 9 = 6 there; theta = 2 * 3 / 3."""
    model = DynamicMeans(lam=7.0, q=0.5, tau=0.0).partial_fit(line(0))
    model.partial_fit(line(3), sample_weight=[2])
    assert model.labels_.tolist() == [0]
    np.testing.assert_allclose(model.cluster_centers_, [[2.0]])
    assert model.weights_.tolist() == [3.0]
    np.testing.assert_allclose(model.objective_, 0.5 + 4 + 2 * 1)


@pytest.mark.parametrize(("lam", "labels"), [(8.0, [0, 0]), (np.nextafter(8.0, 0), [0, 1])])
def test_tie_of_lam_with_a_weighted_row(lam, labels):
    model = DynamicMeans(lam=lam, n_init=1).partial_fit(line(0, 2), sample_weight=[5, 2])
    assert model.labels_.tolist() == labels


@pytest.mark.parametrize("lam", [0.05, "auto", "farthest-first"])
def test_rows_of_weight_zero_are_absent(lam):
    """Rows of weight zero, and their times, are left out; predict labels them."""
    rng = np.random.default_rng(0)
    batches, _ = moving(rng, 2, 4, 10, empty=0, hidden=0, most=20)
    X, times = np.vstack(batches), np.repeat(np.arange(10), [len(Y) for Y in batches])
    w = rng.integers(0, 3, size=len(X)).astype(float)
    w[(times == 0) | (times == 4)] = 0
    used = w > 0
    model = DynamicMeans(lam=lam, random_state=0).fit(X, sample_weight=w, times=times)
    other_model = DynamicMeans(lam=lam, random_state=0).fit(
        X[used], sample_weight=w[used], times=times[used]
    )
    assert np.array_equal(model.labels_[used], other_model.labels_)
    same_records(model, other_model)
    assert model.times_.tolist() == [1, 2, 3, 5, 6, 7, 8, 9]
    stream = DynamicMeans(lam=lam, random_state=0)
    for t in model.times_:
        stream.partial_fit(X[times == t], sample_weight=w[times == t])
        assert np.array_equal(model.labels_[times == t], stream.labels_)
        idle = (times == t) & ~used
        assert np.array_equal(stream.predict(X[idle]), model.labels_[idle])
        if t == 3:
            assert np.array_equal(stream.predict(X[times == 4]), model.labels_[times == 4])
        if t == 1:
            assert np.array_equal(stream.predict(X[times == 0]), model.labels_[times == 0])


def test_rows_of_weight_zero_without_clusters():
    """Q above lam: clusters die in the step in which they are born."""
    model = DynamicMeans(lam=1.0, q=2.0, tau=0.0).fit(line(0, 5), sample_weight=[1, 0])
    assert model.n_clusters_ == 0 and model.labels_.tolist() == [0, -1]


@seeds(120)
def test_objective_never_rises_within_a_step(seed):
    """The objective falls from sweep to sweep, for general, tied and remote data."""
    rng = np.random.default_rng(seed)
    n, d, k = (
        int(rng.integers(1, 70 if seed % 3 == 0 else 300)),
        int(rng.integers(1, 4)),
        int(rng.integers(0, 9)),
    )
    Y, phi = rng.random((n, d)), rng.random((k, d))
    if seed % 3 == 1:
        Y, phi = np.round(6 * Y) / 6, np.round(6 * phi) / 6
    if seed % 3 == 2:
        Y, phi = Y + 1e6, phi + 1e6
    v, ages = rng.gamma(2.0, 5.0, size=k) + 0.01, rng.integers(1, 6, size=k)
    lam, tau = float(rng.choice([0.003, 0.02, 0.1, 0.5])), float(rng.choice([0.0, 0.1, 1.0]))
    q = lam * float(rng.choice([0.0, 0.1, 0.5]))
    gamma = 1 / (1 / v + tau * ages)
    order = rng.permutation(n) if seed % 2 else None
    step = dynamic.DynamicStep(Y, None, phi, gamma, q * ages, lam, 1 + seed % 3).run(order, 300)
    (labels, _, counts), n_iter = step.result(), step.n_iter
    path = [step.run(order, i + 1).objective for i in range(n_iter)]
    assert never_rises(path)
    assert step.run(order, 300).converged and (path[-1], n_iter) == (step.objective, step.n_iter)
    assert np.array_equal(np.bincount(labels, minlength=len(counts)), counts)
    assert (counts[k:] > 0).all()
    if seed % 3 == 0:
        twin = twins.dynamic.dynamic_step(Y, phi, v, ages, lam, q, tau, order=order)
        assert np.array_equal(labels, twin.labels)
        np.testing.assert_allclose(path, twin.path, rtol=1e-9)


@seeds(12)
def test_a_start_is_not_changed_by_those_before(seed):
    """Each run of a step is as if it was the first one, and leaves earlier results as they are."""
    rng = np.random.default_rng(seed)
    Y, phi = rng.random((90, 2)), rng.random((seed % 5, 2))
    weights = rng.integers(1, 4, 90).astype(float) if seed % 2 else None
    lam = 0.001 if seed % 3 else 0.1  # many clusters: more than there is room for at first
    arguments = Y, weights, phi, rng.random(len(phi)) + 1, 0.3 * lam * np.ones(len(phi)), lam, 1
    step, results = dynamic.DynamicStep(*arguments), []
    for order in (rng.permutation(90), None, rng.permutation(90), None):
        alone = dynamic.DynamicStep(*arguments).run(order, 300)
        step.run(order, 300)
        assert (step.objective, step.n_iter) == (alone.objective, alone.n_iter)
        results.append((step.result(), alone.result()))
    for first, second in results:
        assert all(map(np.array_equal, first, second))


# Divergences and directions -----------------------------------------------------------------


@each_kind
def test_no_objective_is_below_the_least_of_all_labels(kind):
    """Most of 15 problems reach it in one of ten orders."""
    reached = 0
    for seed in range(15):
        rng, k = np.random.default_rng(seed), seed % 3
        Y, phi = (in_domain(kind, rng.random((n, 2 + seed % 4))) for n in (4, k))
        w, lam = rng.integers(1, 5, size=4) / 2.0, LAM[kind] * rng.choice([0.2, 1.0, 2.0])
        old = phi, rng.gamma(2.0, 2.0, size=k), lam * rng.random(k)
        step = RuleStep(Rule(kind), Y, w, *old, lam, 1)
        least = min(
            twins.dynamic.best_centers(Y, w, np.array(labels), *old, lam, kind)[1]
            for labels in itertools.product(range(k + 4), repeat=4)
        )
        paths = [step.run(order, 300).values for order in map(rng.permutation, [4] * 10)]
        found = min(path[-1] for path in paths)
        assert all(map(never_rises, paths)) and found >= least * (1 - 1e-9)
        reached += found <= least * (1 + 1e-9)
    assert reached >= 10


def test_directions_without_a_mean():
    """Opposite rows of equal weight have no mean direction: the center stays."""
    model = DynamicMeans(lam=2.0, q=0.0, tau=0.0, directions=True)
    model.partial_fit([[1.0, 0.0]]).partial_fit([[-5.0, 0.0]])
    assert model.cluster_centers_.tolist() == [[1.0, 0.0]] and model.objective_ == 2.0


def test_centers_off_the_border():
    """A word that the first row of a cluster lacks does not keep out rows that have it."""
    batch = np.array([[40.0, 0.0, 7.0], [40.0, 1.0, 9.0], [41.0, 0.0, 8.0], [1.0, 0.0, 90.0]])
    model = DynamicMeans(lam=12.0, n_init=1, divergence="kl")
    for _ in range(3):
        assert model.partial_fit(batch).labels_.tolist() == [0, 0, 0, 1]
    assert model.cluster_centers_[1, 1] == 0.0  # a mean stays on the border


@each_kind
def test_penalties_by_a_rule(kind):
    """By the paths of single data sets and the farthest-first rule, in the unit of the weights."""
    Y, options = in_domain(kind, blobs(np.random.default_rng(5), 180, 8, 6, 0.05)), rule(kind)
    single = partial(BregmanDPMeans, **options) if "divergence" in options else SphericalDPMeans
    path = single(random_state=0).fit(Y).path_
    model = DynamicMeans(random_state=0, n_threads=3, **options).partial_fit(Y)
    assert model.path_.best == path.best > 1
    seeds, lams = [Y[0] if kind == "directions" else Y.mean(axis=0)], []
    for _ in range(path.best + 1):
        far = np.min([twins.dynamic.differences(Y, c[None], kind)[:, 0] for c in seeds], axis=0)
        lams.append(far.max())
        seeds.append(twins.dynamic.off_border(Y[far.argmax()], 1.0, Y.mean(axis=0), kind))
    np.testing.assert_allclose(model.lam_, np.sqrt(lams[-1] * lams[-2]))
    weighted = DynamicMeans(random_state=0, n_threads=1, **options)
    weighted.partial_fit(Y, sample_weight=np.full(len(Y), 4.0))
    assert weighted.lam_ == 4.0 * model.lam_ and np.array_equal(weighted.labels_, model.labels_)
    alone = DynamicMeans(random_state=0, **options).partial_fit(Y[:1].repeat(9, axis=0))
    assert alone.lam_ == 1.0 and alone.partial_fit(Y).lam_ == model.lam_


@pytest.mark.parametrize(
    ("options", "X", "words"),
    [
        ({"divergence": "kl"}, [[1.0, -1.0]], "X must be >= 0 for divergence='kl', got -1"),
        ({"divergence": "x"}, [[0.0, 2.0]], "divergence must be .*'kl'.* got 'x'"),
        (
            {"directions": True},
            [[1.0, 1.0], [0.0, 0.0]],
            "length zero.*got 1, the first at index 1",
        ),
        ({"directions": 1}, [[1.0, 1.0]], "directions must be True or False, got 1"),
        (
            {"directions": True, "divergence": "kl"},
            [[1.0, 1.0]],
            "divergence must be 'squared_eucl",
        ),
    ],
)
def test_bad_rules(options, X, words):
    """Refused by all methods, and in the middle of a stream."""
    errors = ValueError, TypeError
    model = DynamicMeans(lam=1.0, random_state=0).partial_fit([[0.5, 0.5]]).set_params(**options)
    for call in (lambda m: m.partial_fit(X), lambda m: m.predict(X), lambda m: clone(m).fit(X)):
        assert_refuses(model, call, errors, words)
    with pytest.raises(errors, match=f"{words}|must stay what it was at the first batch"):
        model.partial_fit([[0.5, 0.5]])


# Worked examples ---------------------------------------------------------------------------


def test_revival():
    """phi = 1, v = 2; 4 costs 1 + 2/3 * 9 = 7 there; theta = (2 * 1 + 4) / 3."""
    model = DynamicMeans(lam=10.0, q=1.0, tau=0.0).partial_fit(line(0, 2))
    assert model.cluster_centers_.tolist() == [[1.0]]
    assert model.weights_.tolist() == [2.0]
    assert model.objective_ == 12
    model.partial_fit(line(4))
    assert model.labels_.tolist() == [0]
    np.testing.assert_allclose(model.cluster_centers_, [[2.0]])
    assert model.weights_.tolist() == [3.0]
    np.testing.assert_allclose(model.objective_, 1 + 2 * 1 + 4)


def test_revival_with_fading_weight():
    """gamma = 1 / (1/2 + tau D) = 1, then (v = 2, D = 3) 1 / (1/2 + 3/2) = 1/2."""
    model = DynamicMeans(lam=100.0, q=1.0, tau=0.5).partial_fit(line(0, 2)).partial_fit(line(4))
    np.testing.assert_allclose(model.cluster_centers_, [[2.5]])
    assert model.weights_.tolist() == [2.0]
    model.partial_fit(NOBODY).partial_fit(NOBODY)
    assert model.ages_.tolist() == [3]
    assert model.weights_.tolist() == [2.0]  # of an old center as it was; it fades when revived
    model.partial_fit(line(4, 4))
    np.testing.assert_allclose(model.cluster_centers_, [[(0.5 * 2.5 + 8) / 2.5]])
    assert model.weights_.tolist() == [2.5]
    theta = model.cluster_centers_[0, 0]
    np.testing.assert_allclose(
        model.objective_, 3 + 0.5 * (theta - 2.5) ** 2 + 2 * (4 - theta) ** 2
    )


@pytest.mark.parametrize(("lam", "label"), [(7.0, 0), (np.nextafter(7.0, 0), 1)])
def test_tie_of_lam_with_a_revival(lam, label):
    """4 costs 1 + 1/2 * 12 at the old cluster: v = 1, phi = 0, y^2 = 12."""
    model = DynamicMeans(lam=lam, q=1.0, tau=0.0, n_init=1).partial_fit([[0.0, 0.0, 0.0]])
    assert model.partial_fit([[2.0, 2.0, 2.0]]).labels_.tolist() == [label]


@pytest.mark.parametrize(("lam", "labels"), [(4.0, [0, 0]), (np.nextafter(4.0, 0), [0, 1])])
def test_tie_of_lam_with_an_active_cluster(lam, labels):
    assert DynamicMeans(lam=lam).partial_fit(line(0, 2)).labels_.tolist() == labels


def test_ties_go_to_the_oldest():
    """5 is as far from an unseen cluster as from another; then from two active ones."""
    model = DynamicMeans(lam=9.0, q=0.0, tau=0.0).partial_fit(line(2, 8))
    assert model.partial_fit(line(5)).labels_.tolist() == [0]
    model = DynamicMeans(lam=9.0, n_init=1).partial_fit(line(2, 8, 5))
    assert model.labels_.tolist() == [0, 1, 0]


def test_revival_against_an_active_cluster():
    """An active cluster costs the distance alone, an unseen one a share of it and its age."""
    model = DynamicMeans(lam=30.0, q=2.0, tau=0.0, n_init=1).partial_fit(line(0, 10))
    # 10 takes up cluster 1 (2 + 0); 5.5 costs 20.25 there, 2 + 1/2 * 30.25 = 17.125 at 0
    model.partial_fit(line(10, 5.5))
    assert model.labels_.tolist() == [1, 0]
    np.testing.assert_allclose(model.cluster_centers_, [[2.75], [10.0]])


def test_sole_member_of_an_old_cluster_leaves():
    """4 revives 0 (theta = 2); 8 opens a cluster that takes three at 5.1; 4 then goes there."""
    model = DynamicMeans(lam=10.0, q=0.0, tau=0.0, n_init=1).partial_fit(line(0))
    model.partial_fit(line(4, 8, 5.1, 5.1, 5.1))
    assert model.labels_.tolist() == [1] * 5
    assert model.cluster_ids_.tolist() == [0, 1]
    assert model.cluster_centers_[0] == 0.0  # back at its old center, as if it had not been seen
    np.testing.assert_allclose(model.cluster_centers_[1], 27.3 / 5)
    assert model.weights_.tolist() == [1.0, 5.0]
    assert model.ages_.tolist() == [2, 1]
    np.testing.assert_allclose(
        model.objective_, 10 + np.square(line(4, 8, 5.1, 5.1, 5.1) - 5.46).sum()
    )


@pytest.mark.parametrize("t_q", [2, 2.0, 2.5, 3, 6.8, 7])
def test_dies_when_older_than_t_q(t_q):
    model = DynamicMeans(lam=0.3, t_q=t_q, k_tau=1.0).partial_fit(line(0))
    age = 1
    while age + 1 <= t_q:
        model.partial_fit(NOBODY)
        age += 1
        assert model.ages_.tolist() == [age]
    assert model.partial_fit(NOBODY).n_clusters_ == 0
    assert model.cluster_centers_.shape == (0, 1)


@pytest.mark.parametrize("lam", [0.1, 0.3, 0.7, 1.1, 3.3])
@pytest.mark.parametrize("t_q", [3, 7, 10, 11, 22, 23, 25, 49])
def test_rounding_neither_kills_nor_bars_revival(lam, t_q):
    """lam / t_q * t_q may be more than lam: at that age a cluster still takes its own center."""
    model = DynamicMeans(lam=lam, t_q=t_q, k_tau=1.0).partial_fit(line(0))
    for _ in range(t_q - 1):
        model.partial_fit(NOBODY)
    assert model.ages_.tolist() == [t_q]
    assert model.partial_fit(line(0)).labels_.tolist() == [0]
    for _ in range(t_q):
        model.partial_fit(NOBODY)
    assert model.n_clusters_ == 0


def test_dies_when_q_times_age_exceeds_lam():
    model = DynamicMeans(lam=1.0, q=0.5, tau=0.0).partial_fit(line(0))
    assert model.partial_fit(NOBODY).n_clusters_ == 1
    assert model.partial_fit(NOBODY).n_clusters_ == 0
    model = DynamicMeans(lam=1.0, q=1.01, tau=0.0).partial_fit(line(0))  # gone at once
    assert model.n_clusters_ == 0 and model.labels_.tolist() == [0]
    assert model.partial_fit(line(0)).labels_.tolist() == [1]


def test_number_is_never_used_again():
    model = DynamicMeans(lam=1.0, t_q=1.5, k_tau=1.0)
    for number in range(5):
        assert model.partial_fit(line(0)).labels_.tolist() == [number]
        assert model.cluster_ids_.tolist() == [number]
        model.partial_fit(NOBODY)
        assert model.n_clusters_ == 0
    model.fit(line(0, 9))  # from scratch
    assert model.cluster_ids_.tolist() == [0, 1]


def test_new_numbers_follow_the_points():
    """Numbers are handed out at the end of a step, in the order in which clusters opened."""
    model = DynamicMeans(lam=1.0, n_init=1).partial_fit(line(5, 0, 9))
    assert model.labels_.tolist() == [0, 1, 2]
    assert model.partial_fit(line(30, 0, 20)).labels_.tolist() == [3, 1, 4]


def test_other_orders_do_not_renumber():
    """Starts that come to the same clusters are equally good: the order given goes on."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        Y = (10 * rng.permutation(6) + 0.3 * rng.normal(size=(8, 6))).reshape(-1, 1)
        model = DynamicMeans(lam=9.0, n_init=3, random_state=seed).partial_fit(Y)
        assert model.labels_.tolist() == list(range(6)) * 8, seed


def test_empty_batches():
    model = DynamicMeans(lam=1.0, t_q=4.0, k_tau=1.1).partial_fit(line(0, 5))
    before = model.cluster_centers_.copy()
    model.partial_fit(NOBODY)
    assert model.predict(line(0, 4), dormant=True).tolist() == [0, 1]
    with pytest.raises(ValueError, match="no cluster was seen in the last step.*dormant=True"):
        model.predict(line(0, 4))
    assert model.ages_.tolist() == [2, 2]
    assert model.objective_ == 0 and model.n_iter_ == 0
    assert model.labels_.shape == (0,) and model.labels_.dtype == np.int64
    assert np.array_equal(model.cluster_centers_, before)
    model.partial_fit(line(5))
    assert model.predict(line(0, 5)).tolist() == [1, 1]
    assert model.predict(line(0, 5), dormant=True).tolist() == [0, 1]
    assert model.n_steps_ == 3


def test_predict_by_hand():
    """Seen ones cost the distance, others half of it here (v = 1); numbers, not indices."""
    model = DynamicMeans(lam=4.0, q=1.0, tau=0.0, n_init=1).partial_fit(line(0, 10, 20))
    model.partial_fit(line(20, 10))
    new = line(-50, 5.5, 6, 14, 15, 16)
    assert model.predict(new).tolist() == [1, 1, 1, 1, 1, 2]
    # 0 was seen 1 step before: 1 + x^2 / 2 against (x - 10)^2
    assert model.predict(new, dormant=True).tolist() == [0, 0, 1, 1, 1, 2]
    assert model.predict(line(0)).dtype == np.int64
    for wrong in (1, "yes", None):
        with pytest.raises(TypeError, match="dormant must be True or False"):
            model.predict(new, dormant=wrong)
    with pytest.raises(NotFittedError):
        DynamicMeans().predict(line(0))
    for _ in range(4):
        model.partial_fit(NOBODY)
    for dormant in (False, True):
        with pytest.raises(ValueError, match="no cluster lives, so none can be predicted"):
            model.predict(line(0), dormant=dormant)


@each_kind_of_center
@seeds(14)
def test_predict_equals_twin(kind, seed):
    """One more row of the last step; the rows of that step themselves stay where they are."""
    rng = np.random.default_rng(seed)
    batches, _ = moving(rng, 3, 6, 8, empty=0.3)
    lam = LAM.get(kind, 0.05)
    options = penalties(seed, lam)
    model = DynamicMeans(lam=lam, n_init=1, **options, **rule(kind))
    twin = twins.dynamic.Stream(3, lam, name=kind, **options)
    new, unseen = in_domain(kind, rng.random((100 if kind in LAM else 1500, 3))), 0
    for Y in (in_domain(kind, Y) for Y in batches):
        model.partial_fit(Y)
        twin.take(twin.starts(Y, [None])[0] if len(Y) else None)
        if model.n_clusters_:
            labels = model.predict(new, dormant=True)
            assert np.array_equal(labels, twin.predict(new, dormant=True))
            unseen += np.isin(labels, model.cluster_ids_[model.ages_ > 1]).sum()
        if len(Y):
            assert np.array_equal(model.predict(new), twin.predict(new))
            for dormant in (False, True):
                assert np.array_equal(model.predict(Y, dormant=dormant), model.labels_)
    assert kind in LAM or (unseen > 0) == (seed % 7 != 5)  # t_q = 1.5: nothing lives unseen


# State -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TRACKERS)
@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("seed", [0, np.random.RandomState(3), None])
def test_pickle_goes_on_where_it_stopped(seed, record, kind):
    """A pickled model goes on with its generator."""
    batches, _ = moving(np.random.default_rng(1), 2, 5, 20)
    seed = pickle.loads(pickle.dumps(seed))
    model = kind(lam=0.02, random_state=seed, record=record)
    for Y in batches[:8]:
        model.partial_fit(Y)
    copy = pickle.loads(pickle.dumps(model))
    went_on = state(copy)
    assert went_on == state(model)
    for Y in batches[8:]:
        copy.partial_fit(Y)
        model.partial_fit(Y)
    assert state(model) == state(copy)
    assert state(model)["_generator"] != went_on["_generator"]


class Broken(dynamic.DynamicStep):
    """Fails in the second start, when the generator has moved on."""

    error = MemoryError

    def run(self, order, max_iter):
        """Once."""
        if order is not None:
            raise self.error("broken")
        return super().run(order, max_iter)


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_failed_step_changes_nothing(error, record, monkeypatch):
    batches, _ = moving(np.random.default_rng(1), 2, 5, 12, empty=0)
    model = DynamicMeans(lam=0.02, random_state=0, record=record)
    twin = DynamicMeans(lam=0.02, random_state=0, record=record)
    monkeypatch.setattr(Broken, "error", error)
    for i, Y in enumerate(batches):
        if i % 3 == 1:  # not the first: nothing there at all; see below
            with monkeypatch.context() as patch:
                patch.setattr(dynamic, "DynamicStep", Broken)
                assert_refuses(model, lambda m, Y=Y: m.partial_fit(Y), error)
        assert_refuses(model, lambda m: m.partial_fit(np.full((3, 2), np.nan)), ValueError, "NaN")
        assert state(model.partial_fit(Y)) == state(twin.partial_fit(Y))


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_failed_first_step_changes_nothing(method, monkeypatch):
    """A failed first step does not change a generator that the caller passed, either."""
    Y, generator = np.random.default_rng(0).random((40, 2)), np.random.RandomState(5)
    model = DynamicMeans(lam=0.02, random_state=generator)
    with monkeypatch.context() as patch:
        patch.setattr(dynamic, "DynamicStep", Broken)
        assert_refuses(model, lambda m: getattr(m, method)(Y), MemoryError)
    assert not hasattr(model, "n_steps_") and not hasattr(model, "n_features_in_")


@pytest.mark.long
def test_a_long_stream_does_not_grow():
    """2,000 steps: only the clusters that live are kept, while their numbers count up."""
    rng = np.random.default_rng(0)
    model, sizes = DynamicMeans(lam=0.05, t_q=3.0, k_tau=1.05, random_state=0), []
    centers = rng.random((4, 2))
    for step in range(2000):
        centers += 0.02 * rng.normal(size=(4, 2))
        stray = [[10.0 + step, 0.0]]
        model.partial_fit(np.vstack([centers, stray]))
        if step >= 100:
            sizes.append(len(pickle.dumps(model)))
    assert max(sizes) < 1.2 * min(sizes[:100]) < 10_000
    assert model._next_id >= 2000
    assert model.cluster_ids_.max() >= 1999
    assert model.n_clusters_ < 20 and model.n_steps_ == 2000
    assert not any(hasattr(model, name) for name in RECORDS)


# Records -----------------------------------------------------------------------------------


def same_records(model_a, model_b):
    """Assert equal tracks, births, deaths, revivals and objectives."""
    assert model_a.step_objectives_.tolist() == model_b.step_objectives_.tolist()
    for name in ("births_", "deaths_", "revivals_"):
        first, second = getattr(model_a, name), getattr(model_b, name)
        assert [ids.tolist() for ids in first] == [ids.tolist() for ids in second], name
        assert all(ids.dtype == np.int64 for ids in first)
    assert model_a.tracks_.keys() == model_b.tracks_.keys()
    for number, track in model_a.tracks_.items():
        assert np.array_equal(track, model_b.tracks_[number])


@seeds(8)
def test_record_is_what_fit_gives(seed):
    """The records of ``partial_fit`` and of ``fit`` are those of the twin."""
    rng = np.random.default_rng(seed)
    batches, _ = moving(rng, 2, 4, 15, empty=0)
    batches = [Y for Y in batches if len(Y)]
    options = penalties(seed, 0.05) | {"n_init": 1 + seed % 2, "random_state": seed}
    model = DynamicMeans(lam=0.05, record=True, **options)
    twin, labels = twins.dynamic.Stream(2, 0.05, **penalties(seed, 0.05)), []
    births, deaths, revivals, tracks = [], [], [], {}
    for t, Y in enumerate(batches):
        step = None
        if options["n_init"] == 1:
            (step,) = twin.starts(Y, [None])
            born, died, revived, seen, centers = twin.take(step)
            births.append(born.tolist())
            deaths.append(died.tolist())
            revivals.append(revived.tolist())
            for number, center in zip(seen.tolist(), centers, strict=True):
                tracks.setdefault(number, []).append([t, *center])
        labels.append(model.partial_fit(Y).labels_)
        assert model.step_objectives_[-1] == model.objective_
        assert model.times_.tolist() == list(range(t + 1))
    if options["n_init"] == 1:
        assert [ids.tolist() for ids in model.births_] == births
        assert [ids.tolist() for ids in model.deaths_] == deaths
        assert [ids.tolist() for ids in model.revivals_] == revivals
        assert model.tracks_.keys() == tracks.keys()
        for number, track in tracks.items():
            np.testing.assert_allclose(model.tracks_[number], track, rtol=1e-12)
    times = 0.5 * np.repeat(np.arange(len(batches)), [len(Y) for Y in batches]) - 2
    whole = DynamicMeans(lam=0.05, **options).fit(np.vstack(batches), times=times)
    assert np.array_equal(whole.labels_, np.concatenate(labels))
    assert whole.times_.tolist() == np.unique(times).tolist()
    same_records(whole, model)
    assert whole.n_steps_ == len(batches)
    for name in ("cluster_centers_", "weights_", "cluster_ids_", "ages_", "objective_"):
        assert np.array_equal(getattr(whole, name), getattr(model, name))
    assert np.array_equal(
        DynamicMeans(lam=0.05, **options).fit_predict(np.vstack(batches), times=times),
        whole.labels_,
    )


def test_record_of_empty_batches():
    model = DynamicMeans(lam=1.0, t_q=2, k_tau=1.0, record=True).partial_fit(NOBODY)
    assert model.tracks_ == {} and model.step_objectives_.tolist() == [0.0]
    model.partial_fit(line(0, 0.2)).partial_fit(NOBODY).partial_fit(line(0.1)).partial_fit(NOBODY)
    model.partial_fit(NOBODY).partial_fit(NOBODY)
    assert [ids.tolist() for ids in model.births_] == [[], [0], [], [], [], [], []]
    assert [ids.tolist() for ids in model.deaths_] == [[], [], [], [], [], [0], []]
    assert [ids.tolist() for ids in model.revivals_] == [[], [], [], [0], [], [], []]
    assert model.tracks_[0][:, 0].tolist() == [1.0, 3.0]
    assert (model.step_objectives_ > 0).tolist() == [False, True, False, True, False, False, False]


def test_record_after_the_first_step():
    model = DynamicMeans(lam=1.0).partial_fit(line(0))
    words = "record must be set before the first step"
    assert_refuses(
        model.set_params(record=True), lambda m: m.partial_fit(line(0)), ValueError, words
    )


def test_partial_fit_goes_on_after_fit():
    """The state is that of one stream; nothing of the record of `fit` is left out of date."""
    batches, _ = moving(np.random.default_rng(2), 2, 4, 10, empty=0, hidden=0)
    times = np.repeat(np.arange(5), [len(Y) for Y in batches[:5]])
    stream = DynamicMeans(lam=0.05, random_state=0)
    for Y in batches[:5]:
        stream.partial_fit(Y)
    model = DynamicMeans(lam=0.05, random_state=0).fit(np.vstack(batches[:5]), times=times)
    for Y in batches[5:]:
        model.partial_fit(Y)
        stream.partial_fit(Y)
        for name in STATE:
            assert np.array_equal(getattr(model, name), getattr(stream, name)), name
    assert model.n_steps_ == 10
    for name in ("times_", "step_objectives_", "births_", "deaths_", "revivals_"):
        assert len(getattr(model, name, range(10))) == 10, name


def test_times_in_any_order():
    """Steps are taken in ascending order, rows of a step as given."""
    rng = np.random.default_rng(0)
    batches, _ = moving(rng, 2, 4, 12, empty=0)
    X, times = np.vstack(batches), np.repeat(np.arange(12), [len(Y) for Y in batches])
    mixed = rng.permutation(len(X))
    order = mixed[np.argsort(times[mixed], kind="stable")]
    first = DynamicMeans(lam=0.05, random_state=0).fit(X[order], times=times[order])
    second = DynamicMeans(lam=0.05, random_state=0).fit(X[mixed], times=times[mixed])
    labels = np.empty(len(X), dtype=int)
    labels[order], back = first.labels_, np.empty(len(X), dtype=int)
    back[mixed] = second.labels_
    assert np.array_equal(labels, back)
    same_records(first, second)


def same_state(first, second):
    """Assert equal clusters, objective and generator."""
    for name in (*STATE[:4], "objective_", "n_iter_", "n_steps_", "n_clusters_", "_next_id"):
        assert np.array_equal(getattr(first, name), getattr(second, name)), name


@seeds(14)
def test_gaps_are_batches_without_rows(seed):
    """Gaps by `elapsed`, or by times and `step`, equal batches without rows."""
    rng = np.random.default_rng(seed)
    batches, _ = moving(rng, 2, 4, 25, empty=0.4)
    options = penalties(seed, 0.05) | {"random_state": seed, "record": True}
    stream, other_model = DynamicMeans(lam=0.05, **options), DynamicMeans(lam=0.05, **options)
    elapsed, labels, died = 1, [], []
    for t, Y in enumerate(batches):
        stream.partial_fit(Y)
        if not len(Y) and any(map(len, batches[:t])):
            elapsed += 1
            continue
        other_model.partial_fit(Y, elapsed=elapsed)
        same_state(stream, other_model)
        assert np.array_equal(stream.labels_, other_model.labels_)
        labels.append(other_model.labels_)
        died.append(np.sort(np.concatenate(stream.deaths_[t + 1 - elapsed : t + 1])).tolist())
        elapsed = 1
    assert [sorted(ids.tolist()) for ids in other_model.deaths_] == died
    for number, track in stream.tracks_.items():
        mine = other_model.tracks_[number]
        assert np.array_equal(
            stream.times_[track[:, 0].astype(int)], other_model.times_[mine[:, 0].astype(int)]
        )
        assert np.array_equal(track[:, 1:], mine[:, 1:])
    times = np.repeat(np.arange(25), [len(Y) for Y in batches])
    first = times.min()
    for dtype, step, origin in ((np.int64, 1, 0), (np.int16, 20, -7), (np.uint64, 3, 2**63)):
        given = (times * step).astype(np.int64).astype(dtype) + np.asarray(origin).astype(dtype)
        whole = DynamicMeans(lam=0.05, **options).fit(np.vstack(batches), times=given, step=step)
        assert np.array_equal(whole.labels_, np.concatenate(labels))
        assert whole.n_steps_ == times.max() - first + 1
        assert whole.times_.tolist() == np.unique(given).tolist()
        assert [sorted(ids.tolist()) for ids in whole.deaths_] == died[first:]


def test_long_gaps():
    """Long gaps take no loop over their steps."""
    for gap in (10**9, 2**31 - 1):
        for options, left in (({"t_q": 5, "k_tau": 1.1}, [1]), ({"q": 0, "tau": 0}, [0, 1])):
            model = DynamicMeans(lam=1.0, **options)
            model.fit(line(0, 9), times=[0, gap], step=1)
            assert model.cluster_ids_.tolist() == left
            assert model.n_steps_ == gap + 1 and len(model.times_) == 2
            model.partial_fit(line(9), elapsed=gap)
            assert model.n_steps_ == 2 * gap + 1
            assert model.labels_.tolist() == [1 if "q" in options else 2]


@pytest.mark.parametrize(
    ("times", "step", "message"),
    [
        ([0, 1, 5], 2, "times must be whole steps of 2 apart, got 0 and 1"),
        ([0.0, 1.0, 2.0], 1, "times must be integers where step is given, got float64"),
        (["a", "b", "c"], 1, "times must be integers where step is given"),
        (np.arange(3).astype("datetime64[D]"), 1, "times must be integers .* datetime64"),
        (None, 1, "step must be None without times, got 1"),
        ([0, 1, 2], 0, "step must be >= 1, got 0"),
        ([0, 2**31 + 1, 1], 1, "times must be at most 2147483647 steps apart, got 1 and"),
        ([0, 1, 2], 2**70, "step must be <= "),
    ],
)
def test_bad_steps(times, step, message):
    model = DynamicMeans(lam=1.0, random_state=0).fit(line(0, 4))
    fit = partial(DynamicMeans.fit, X=line(0, 1, 2), times=times, step=step)
    assert_refuses(model, fit, ValueError, message)


@pytest.mark.parametrize("value", [1.0, True, "1", [1], np.timedelta64(1, "D")])
def test_steps_of_the_wrong_kind(value):
    with pytest.raises(TypeError, match="step must be an integer or None"):
        DynamicMeans(lam=1.0).fit(line(0, 1), times=[0, 1], step=value)
    with pytest.raises(TypeError, match="elapsed must be an integer"):
        DynamicMeans(lam=1.0).partial_fit(line(0, 1), elapsed=value)


@pytest.mark.parametrize("value", [0, -1, 2**31, 2**70])
def test_elapsed_out_of_bounds(value):
    model = DynamicMeans(lam=1.0, random_state=0).partial_fit(line(0, 4))
    call = lambda m: m.partial_fit(line(0), elapsed=value)  # noqa: E731
    assert_refuses(model, call, ValueError, "elapsed must be")


LEVELS = ["low", "mid", "high"]
SECOND = "2024-01-01T00:00:00"


def categories(kind):
    """Times low, mid, high, high, low in this order, in containers that can say so."""
    cells = ["low", "mid", "high", "high", "low"]
    if kind == "polars":
        pl = pytest.importorskip("polars")
        return pl.Series(cells, dtype=pl.Enum(LEVELS))
    if kind.startswith("pyarrow"):
        pa = pytest.importorskip("pyarrow")
        parts = [[0, 1, 2], [2, 0]] if kind == "pyarrow chunks" else [[0, 1, 2, 2, 0]]
        parts = [pa.DictionaryArray.from_arrays(part, LEVELS, ordered=True) for part in parts]
        return pa.chunked_array(parts) if kind == "pyarrow chunks" else parts[0]
    pd = pytest.importorskip("pandas")
    column = pd.Categorical(cells, LEVELS, ordered=True)
    return {"Categorical": column, "Series": pd.Series(column), "Index": pd.Index(column)}[kind]


@pytest.mark.parametrize(
    "kind", ["Categorical", "Series", "Index", "polars", "pyarrow", "pyarrow chunks"]
)
def test_times_in_the_order_of_categories(kind):
    numbers, levels = read_times(categories(kind), 5)
    assert (numbers.tolist(), levels.tolist()) == ([0, 1, 2, 2, 0], LEVELS)
    X = line(0, 1, 2, 22, 20)
    model = DynamicMeans(lam=9.0).fit(X, times=categories(kind))
    assert model.times_.tolist() == LEVELS
    assert [ids.tolist() for ids in model.births_] == [[0, 1], [], []]
    with pytest.raises(ValueError, match="times must be integers .* got ordered categories"):
        model.fit(X, times=categories(kind), step=1)


def dates(*text, unit="us"):
    return np.array(text, dtype=f"datetime64[{unit}]")


@pytest.mark.parametrize(
    ("text", "times"),
    [
        (["10", "9", "0"], np.array([10, 9, 0])),
        ([" 1e1", "9.5", "-3"], np.array([10.0, 9.5, -3.0])),
        (["9007199254740993", "9007199254740992", "1"], np.array([2**53 + 1, 2**53, 1])),
        (["1", "1.0", "10e-1", "2"], np.array([1.0, 1.0, 1.0, 2.0])),
        (["9223372036854775808", "9223372036854775809"], np.array([2**63, 2**63 + 1], np.uint64)),
        ([2**63 + 1, -1, 2**63], np.array([2**63 + 1, -1, 2**63], dtype=object)),
        ([2**53 + 1, 0.5, 2**53], np.array([2**53 + 1, 0.5, 2**53], dtype=object)),
        (
            ["01.02.2023", "15.01.2023", "03.12.2022"],
            dates("2023-02-01", "2023-01-15", "2022-12-03"),
        ),
        (["1/2/2023", "1/13/2022", "1/1/2022"], dates("2023-01-02", "2022-01-13", "2022-01-01")),
        (["1-2-2023", "13-1-2023", "1-1-2022"], dates("2023-02-01", "2023-01-13", "2022-01-01")),
        (["2/2/2023", "3/3/2023", "1/1/2022"], dates("2023-02-02", "2023-03-03", "2022-01-01")),
        (["2023/2/1", "2023/10/1", "2022/1/1"], dates("2023-02-01", "2023-10-01", "2022-01-01")),
        (
            ["1.2.2023 10:00", "1.2.2023 9:30", "31.1.2023 23:00"],
            dates("2023-02-01T10:00", "2023-02-01T09:30", "2023-01-31T23:00"),
        ),
        (
            ["2023-02-01T01:00+02:00", "2023-01-31", "2023-01-31T22:00:00.5"],
            dates("2023-01-31T23:00", "2023-01-31", "2023-01-31T22:00:00.5"),
        ),
        # digits that Python's dates do not have
        (
            [f"{SECOND}.000000002", f"{SECOND}.0000000010", f"{SECOND}.000000001"],
            dates(*(f"{SECOND}.00000000{i}" for i in (2, 1, 1)), unit="ns"),
        ),
        (
            [f"{SECOND},1234567+01:00", "2023-12-31T23:00:00.123456Z", "20240101"],
            dates("2023-12-31T23:00:00.1234567", "2023-12-31T23:00:00.123456", SECOND, unit="ns"),
        ),
    ],
)
def test_times_are_read(text, times):
    for given in (text, np.array(text), np.array(text, dtype=object)):
        if isinstance(text[0], str) or given is text:
            found, levels = read_times(given, len(text))
            assert levels is None and found.dtype.kind == times.dtype.kind
            assert np.array_equal(found, times)


@pytest.mark.parametrize(
    "times",
    [
        # finer than nanoseconds, or beyond the years of datetime64[ns], or the digits of numbers
        [f"{SECOND}.0000000001", f"{SECOND}.0000000002"],
        ["2500-01-01T00:00:00.000000001", "2500-01-01T00:00:00.000000002"],
        [f"{SECOND}+01:00:00.0000001", f"{SECOND}+01:00:00.0000002"],
        ["18446744073709551616", "18446744073709551617"],
        ["1.00000000000000000001", "1.00000000000000000002"],
        ["1e-401", "1e-400"],
    ],
)
@pytest.mark.filterwarnings("ignore:times are text")
def test_different_times_stay_apart(times):
    """Times are one step only if they are equal, however many digits they have."""
    assert read_times(times, 2)[0].tolist() == times
    assert DynamicMeans(lam=9.0).fit(line(0, 1), times=times).times_.tolist() == sorted(times)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (["t1", "t2", "t10"], "order of the alphabet: 't1', 't10', 't2'; give"),
        (["1_1", "2_1", "10_1"], "order of the alphabet: '10_1'"),
        (["01/02/2023", "02/01/2022"], "as days and months .* cannot be told apart: '01/02/2023'"),
        (["Jan", "Feb", "Mar", "Apr"], "'Apr', 'Feb', 'Jan', ...; give"),
        (["2023-02-30", "2023-02-29"], "order of the alphabet"),
        ("unordered", "order of the alphabet: 'high', 'low', 'mid'; give"),
    ],
)
def test_text_whose_order_is_doubtful(times, words):
    if times == "unordered":
        times = pytest.importorskip("pandas").Categorical(["low", "mid", "high"], LEVELS)
    with pytest.warns(UserWarning, match=words):
        model = DynamicMeans(lam=9.0).fit(np.arange(len(times))[:, None], times=times)
    assert model.times_.tolist() == sorted(times)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([0, None, 1], "times must not be missing, got None at position 1"),
        ([0.0, np.nan, 1.0], "times must not be missing, got nan at position 1"),
        ([0.0, 1.0, np.inf], "times must be finite, got inf at position 2"),
        ([2**53, 2**53 + 1, -np.inf], "times must be finite, got -inf at position 2"),
        (np.array([0, np.inf, 1], dtype=object), "times must be finite, got inf at position 1"),
        (["1", "nan", "2"], "times must be finite, got nan at position 1"),
        ("category", "times must not be missing, got None at position 1"),
    ],
)
def test_bad_times(times, message):
    if isinstance(times, str):
        pd = pytest.importorskip("pandas")
        times = pd.Categorical(["low", None, "mid"], LEVELS, ordered=True)
    model = DynamicMeans(lam=1.0, random_state=0).fit(line(0, 4))
    assert_refuses(model, lambda m: m.fit(line(0, 1, 2), times=times), ValueError, message)


def test_times_of_one_column():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"t": pd.Categorical(LEVELS, LEVELS, ordered=True)})
    for times in (
        [[2], [1], [0]],
        np.array([[2], [1], [0]]),
        pd.DataFrame({"t": [2, 1, 0]}),
        table,
    ):
        with pytest.warns(DataConversionWarning, match=r"times must have shape \(3,\), got a col"):
            found, levels = read_times(times, 3)
        assert found.tolist() == ([2, 1, 0] if levels is None else [0, 1, 2])
        assert (levels is None) == (times is not table)


def test_kinds_of_times():
    """Times may be of any kind that sorts."""
    pd = pytest.importorskip("pandas")
    batches, _ = moving(np.random.default_rng(0), 2, 4, 8, empty=0, hidden=0)
    X, step = np.vstack(batches), np.repeat(np.arange(8), [len(Y) for Y in batches])
    plain = DynamicMeans(lam=0.05, random_state=0).fit(X, times=step)
    days = np.datetime64("2024-02-26") + step
    for times in (
        step.tolist(),
        step.astype(np.int8) - 4,
        0.1 * step - 0.3,
        days,
        days - days[0],  # timedelta64
        days.astype(object),  # datetime.date
        np.array(list("abcdefgh"))[step],
        pd.to_datetime(pd.Series(days)).dt.tz_localize("UTC"),
        pd.Series(step, index=np.arange(len(X))[::-1]),
        pd.Series(np.array(list("abcdefgh"))[step]),
    ):
        model = DynamicMeans(lam=0.05, random_state=0).fit(X, times=times)
        assert np.array_equal(model.labels_, plain.labels_)
        assert len(model.times_) == 8 and (model.times_[1:] > model.times_[:-1]).all()
        same_records(model, plain)
    model = DynamicMeans(lam=0.05, random_state=0).fit(X, times=days)
    assert model.times_.dtype.kind == "M" and model.times_[3] == np.datetime64("2024-02-29")


def test_without_times_all_is_one_step():
    X = np.random.default_rng(0).random((80, 2))
    model = DynamicMeans(lam=0.05, random_state=0).fit(X)
    other_model = DynamicMeans(lam=0.05, random_state=0).fit(X, times=np.full(80, 7.5))
    assert np.array_equal(model.labels_, other_model.labels_)
    assert model.times_.tolist() == [0] and other_model.times_.tolist() == [7.5]
    assert model.n_steps_ == 1 and model.tracks_[0].shape == (1, 3)


def test_fit_starts_from_scratch():
    X = np.random.default_rng(0).random((80, 2))
    model = DynamicMeans(random_state=0).fit(10 * X).partial_fit(X)
    assert state(model.fit(X)) == state(DynamicMeans(random_state=0).fit(X))
    assert state(model.fit(X[:, :1])) == state(DynamicMeans(random_state=0).fit(X[:, :1]))


# Quality -----------------------------------------------------------------------------------


def test_moving_gaussians():
    """As in section 8.1 of the paper (sd, motion and deaths .05), with room to tell them apart."""
    scores = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        centers, truth = 3 * rng.random((5, 2)), np.arange(5)
        model = DynamicMeans(lam=0.1, t_q=6.8, k_tau=1.01, random_state=0)
        learned, truths = [], []
        for _ in range(8):
            died = rng.random(5) < 0.05
            centers = np.clip(centers + 0.05 * rng.normal(size=(5, 2)), 0, 3)
            centers[died] = 3 * rng.random((died.sum(), 2))
            truth = np.where(died, truth + 5, truth)
            who = np.repeat(np.arange(5), 15)
            model.partial_fit(centers[who] + 0.05 * rng.normal(size=(75, 2)))
            learned.append(model.labels_)
            truths.append(truth[who])
        scores.append(adjusted_rand_score(np.concatenate(truths), np.concatenate(learned)))
    assert np.mean(scores) > 0.95, scores


@seeds(3)
def test_batches_of_one_data_set(seed):
    """Q = tau = 0: about as good as DPMeans on the whole, on separated blobs."""
    rng = np.random.default_rng(seed)
    X = rng.permutation(blobs(rng, 3000, 2, 6, spread=0.02))
    lam = 0.05
    whole = DPMeans(lam=lam).fit(X)
    model = DynamicMeans(lam=lam, q=0, tau=0, random_state=0)
    labels = np.concatenate([model.partial_fit(Y).labels_ for Y in np.array_split(X, 12)])
    assert model.weights_.sum() == 3000  # every point counts once
    for k in model.cluster_ids_:  # a center is the mean of all its points
        mean = X[labels == k].mean(axis=0)
        np.testing.assert_allclose(model.cluster_centers_[model.cluster_ids_ == k], [mean])
    numbers, labels = np.unique(labels, return_inverse=True)
    assert len(numbers) == model.n_clusters_
    centers = twins.exact.weighted_means(X, np.ones(len(X)), labels)
    objective = np.square(X - centers[labels]).sum() + lam * len(centers)
    assert objective < 1.03 * whole.objective_
    assert objective > 0.9 * whole.objective_


# Bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam": 0}, "lam must be > 0"),
        ({"lam": np.inf}, "lam must be finite, got inf"),
        ({"t_q": 1, "k_tau": 1.1}, "t_q must be > 1, got 1"),
        ({"t_q": -np.inf, "k_tau": 1.1}, "t_q must be > 1, got -inf"),
        ({"t_q": np.nan, "k_tau": 1.1}, "t_q must be > 1, got nan"),
        ({"t_q": 5, "k_tau": 0.99}, "k_tau must be >= 1, got 0.99"),
        ({"t_q": 5, "k_tau": np.inf}, "k_tau must be finite, got inf"),
        ({"q": -0.1, "tau": 0}, "q must be >= 0, got -0.1"),
        ({"q": np.inf, "tau": 0}, "q must be finite, got inf"),
        ({"q": 0, "tau": -1}, "tau must be >= 0, got -1"),
        ({"t_q": 1e200, "k_tau": 1e200}, r"t_q and k_tau must make tau .* finite, got t_q=1e\+200"),
        ({"q": 0, "tau": np.inf}, "tau must be finite, got inf"),
        ({"t_q": 5}, "either t_q and k_tau or q and tau .* got t_q=5"),
        ({"k_tau": 1.1}, "either t_q and k_tau or q and tau"),
        ({"q": 0}, "either t_q and k_tau or q and tau"),
        ({"tau": 0}, "either t_q and k_tau or q and tau"),
        ({"t_q": 5, "tau": 0}, "either t_q and k_tau or q and tau"),
        ({"q": 0, "tau": 0, "t_q": 5, "k_tau": 1}, "either t_q .* got t_q=5, k_tau=1, q=0"),
    ],
)
def test_values_out_of_bounds(options, message):
    for method in ("fit", "partial_fit"):
        model = DynamicMeans(**({"lam": 1.0} | options))
        assert_refuses(
            model, lambda m, f=method: getattr(m, f)(line(*range(8))), ValueError, message
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam": None}, "lam must be a number > 0"),
        ({"t_q": "6", "k_tau": 1.1}, "t_q must be a number or None"),
        ({"t_q": 6, "k_tau": True}, "k_tau must be a number or None"),
        ({"q": [1], "tau": 0}, "q must be a number or None"),
        ({"q": 0, "tau": 1j}, "tau must be a number or None"),
        ({"record": 1}, "record must be True or False, got 1"),
    ],
)
def test_values_of_the_wrong_kind(options, message):
    for method in ("fit", "partial_fit"):
        with pytest.raises(TypeError, match=message):
            getattr(DynamicMeans(**({"lam": 1.0} | options)), method)(line(0, 1, 2))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[0.0], [1.0]], "1 features, but DynamicMeans is expecting 2 features"),
        (np.zeros((0, 3)), "3 features, but DynamicMeans is expecting 2 features"),
        ([[1e200, 0.0]], "rescale the data"),
    ],
)
def test_bad_batches(X, message):
    model = DynamicMeans(lam=1.0, random_state=0).partial_fit([[0.0, 0.0], [3.0, 3.0]])
    assert_refuses(model, lambda m: m.partial_fit(X), ValueError, message)


def test_weights_of_a_batch():
    model = DynamicMeans(lam=1.0, random_state=0).partial_fit(line(0, 4))
    words = r"ratio of largest to least positive weight of at most 1e\+12, got 1e\+13"
    for method in ("fit", "partial_fit"):
        call = partial(getattr(DynamicMeans, method), X=line(0, 1), sample_weight=[1, 1e13])
        assert_refuses(model, call, ValueError, words)
    with pytest.raises(ValueError, match="sample_weight must have shape"):
        model.partial_fit(NOBODY, sample_weight=[1])
    assert model.partial_fit(NOBODY, sample_weight=[]).n_steps_ == 2


def test_weights_too_large_for_the_data():
    with pytest.raises(ValueError, match="sample_weight must not take the squared spread"):
        DynamicMeans(lam=1.0).fit(line(0, 1e100), sample_weight=[1e95, 1e95])


def test_kernel_forms_take_no_weights():
    with pytest.raises(TypeError, match="sample_weight"):
        KernelDynamicMeans(lam=1.0).fit(line(0, 1), sample_weight=[1, 1])
    with pytest.raises(TypeError, match="sample_weight"):
        KernelDynamicMeans(lam=1.0).partial_fit(line(0, 1), sample_weight=[1, 1])


def test_failed_batch_after_one_without_rows(monkeypatch):
    """After batches without rows the penalties may still change."""
    model = DynamicMeans(lam=1.0, random_state=0).partial_fit(NOBODY)
    with monkeypatch.context() as patch:
        patch.setattr(dynamic, "DynamicStep", Broken)
        assert_refuses(model, lambda m: m.partial_fit(line(0, 1)), MemoryError)
    assert model.set_params(lam=3.0).partial_fit(line(0)).lam_ == 3.0


def test_parameters_in_mid_stream():
    """Parameters that cannot change in a stream are refused, others take effect."""
    model = DynamicMeans(lam=1.0, random_state=0).partial_fit(NOBODY)
    for name, value in (("random_state", 1), ("random_state", None)):
        words = "random_state must stay what it was at the first"
        model.set_params(**{name: value})
        assert_refuses(model, lambda m: m.partial_fit(line(0)), ValueError, words)
        model.set_params(random_state=0)
    model.set_params(lam=2.0, guess=4).partial_fit(line(0, 1.3))  # nothing was derived before
    assert model.lam_ == 2.0 and model.n_clusters_ == 1
    model.set_params(guess=5)
    with pytest.raises(ValueError, match="guess must stay what it was at the first batch, 4"):
        model.partial_fit(line(0))
    model.set_params(guess=4, n_init=1, max_iter=1, n_threads=1, record=False)
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model.partial_fit(line(0, 1, 2, 3, 4))


# Tuning ------------------------------------------------------------------------------------


@seeds(40)
def test_criterion_of_a_record_is_that_of_its_twin(seed):
    """Records with gaps, clusters that pause, weights, one to three columns."""
    rng = np.random.default_rng(seed)
    sizes, d = rng.integers(1, 9, size=rng.integers(2, 12)), rng.integers(1, 4)
    steps = [rng.normal(size=(size, d)) + rng.integers(3, size=(size, 1)) for size in sizes]
    numbers = np.cumsum(rng.integers(1, 4, size=len(sizes)))
    weights = [rng.choice([1.0, 1.0, 2.0, 0.5], size=size) for size in sizes]
    labels = [rng.integers(4, size=size) for size in sizes]
    rows, w = np.concatenate(steps), np.concatenate(weights)
    criterion = tune.RecordCriterion(rows, w, np.repeat(numbers, sizes))
    # the twin gets the rows as the criterion has them, centered and scaled
    parts = np.split(criterion.X, np.cumsum(sizes)[:-1])
    found = criterion(np.concatenate(labels))
    twin = twins.dynamic.record_criterion(parts, numbers, labels, weights, criterion.least)
    assert found == pytest.approx(twin, abs=0.05)


def test_repeated_rows_are_weights_in_the_criterion():
    rng = np.random.default_rng(0)
    X, labels, times = rng.normal(size=(30, 2)), rng.integers(2, size=30), np.arange(30) // 6
    twice = tune.RecordCriterion(np.repeat(X, 2, axis=0), None, np.repeat(times, 2))
    heavy = tune.RecordCriterion(X, np.full(30, 2.0), times)
    twice.least = heavy.least = 0.0
    assert twice(np.repeat(labels, 2)) == pytest.approx(heavy(labels))


def moving_record(seed, k=4):
    """Rows, times and true clusters of a record whose clusters move, die and are born."""
    steps, truth = moving(np.random.default_rng(seed), 2, k, 40, hidden=0.0, empty=0.0)[:2]
    times = np.repeat(np.arange(len(steps)), [len(rows) for rows in steps])
    return np.concatenate(steps), times, truth


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_tuned_parameters_have_the_lowest_criterion_tried(scale):
    X, times, _ = moving_record(1)
    found = tune_dynamic(scale * X, times, random_state=0)
    tried = found.tried
    assert found.criterion == tried["criterion"].min()
    at = tried["criterion"].argmin()
    assert (found.lam, found.t_q, found.k_tau) == tuple(
        tried[n][at] for n in ("lam", "t_q", "k_tau")
    )
    assert found.estimator.get_params()["t_q"] == found.t_q
    assert len(np.unique(found.estimator.labels_)) == tried["n_clusters"][at]
    fixed = tune_dynamic(X, times, lam=0.05, t_q=[2, 5], k_tau=1.0, random_state=0)
    assert fixed.lam == 0.05 and set(fixed.tried["t_q"]) == {2.0, 5.0}
    twice = tune_dynamic(scale * X, times, random_state=0, n_threads=2)
    np.testing.assert_array_equal(twice.tried["criterion"], tried["criterion"])


def test_tuning_finds_clusters_that_a_step_does_not_show():
    """Steps of one cluster each, and of one row each: the range of lam and the memory must do."""
    rng = np.random.default_rng(0)
    times = np.arange(40).repeat(3)
    X = np.column_stack((20.0 * (times % 2), 0.0 * times)) + 0.3 * rng.standard_normal((120, 2))
    assert len(np.unique(tune_dynamic(X, times, random_state=0).estimator.labels_)) == 2
    X = np.array([[0, 0], [3.0, 0], [0, 3]])[np.arange(120) % 3] + 0.3 * rng.standard_normal(
        (120, 2)
    )
    assert len(np.unique(tune_dynamic(X, np.arange(120), random_state=0).estimator.labels_)) == 3


def test_tuning_knows_no_unit_of_weights():
    X, times, _ = moving_record(3)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, size=len(X))
    found = [
        tune_dynamic(X, times, sample_weight=unit * weight, lam=[0.05, 0.1], random_state=0)
        for unit in (1.0, 2.0**-20)
    ]
    np.testing.assert_array_equal(found[0].tried["criterion"], found[1].tried["criterion"])


def test_tuning_of_a_long_record_uses_a_part_of_it(monkeypatch):
    X, times, _ = moving_record(2)
    monkeypatch.setattr(tune, "MOST_STEP_ROWS", 10)
    monkeypatch.setattr(tune, "MOST_ROWS_USED", 100)
    found = tune_dynamic(X, times, lam=[0.03, 0.06], t_q=3, k_tau=1.05, random_state=0)
    assert len(found.estimator.labels_) == len(X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"times": 1}, "times must have at least two steps, got 1"),
        ({"X": 0}, "X must have rows that differ"),
        ({"lam": []}, "lam must be None, a number or numbers, got"),
        ({"lam": [0.0]}, "lam must be"),
        ({"t_q": 1.0}, "t_q must be > 1, got 1.0"),
        ({"k_tau": [1.0, 0.5]}, "k_tau must be >= 1, got 0.5"),
        ({"k_tau": "auto"}, "k_tau must be None, a number or numbers, got"),
        ({"n_init": 0}, "n_init must be >= 1, got 0"),
        ({"X": np.nan}, "NaN.* in column 0 at position 0: fill it"),
        ({"X": None}, "^DynamicMeans takes dense data only"),
    ],
)
def test_bad_input_of_tuning(change, message):
    X, times = np.arange(12.0).reshape(6, 2), np.repeat(np.arange(3), 2)
    if "X" in change:
        X = csr_array(X) if change["X"] is None else np.full((6, 2), change["X"], dtype=float)
        change = {}
    elif "times" in change:
        times, change = np.zeros(6, dtype=int), {}
    with pytest.raises((ValueError, TypeError), match=message):
        tune_dynamic(X, times, **change)
