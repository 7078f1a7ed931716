"""Invariants that hold for any data, searched for counterexamples."""

import numpy as np
import pytest
import twins.exact
import twins.features
import twins.penalty
from helpers import never_rises
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from problems import check_features, check_state

from smallvar import (
    BPMeans,
    DPMeans,
    KFeatures,
    MiniBatchDPMeans,
    farthest_first_lambda,
    feature_path,
)

algorithms = st.sampled_from(["serial", "delayed", "collapsed"])
guesses = st.integers(1, 12)


@st.composite
def general_data(draw, n_max=120):
    """Random data without ties, clustered or not, of any shape and scale."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(1, n_max)), draw(st.integers(1, 20))
    k = draw(st.integers(1, 10))
    X = rng.normal(size=(k, d))[rng.integers(k, size=n)] + draw(
        st.sampled_from([0.05, 0.3, 1.0])
    ) * rng.normal(size=(n, d))
    return X * 10.0 ** draw(st.integers(-4, 4))


# Small integers and their halves: many equal rows, many equal distances.
tied_data = st.tuples(st.integers(1, 30), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(-4, 4).map(lambda v: v / 2))
)


def assert_same_clusters(model_a, model_b, algorithm):
    """The same labels; after delayed creation the same clusters, whatever their numbers.

    (The two rows of a pair are equally far from their mean, so rounding alone decides
    which of them leaves it.)
    """
    if algorithm == "delayed":
        pairs = set(zip(model_a.labels_.tolist(), model_b.labels_.tolist(), strict=True))
        assert len(pairs) == model_a.n_clusters_ == model_b.n_clusters_
    else:
        assert np.array_equal(model_a.labels_, model_b.labels_)


def penalty(X, k):
    return 0.8 * twins.penalty.farthest_first(X, min(k, len(X)))


@given(tied_data, st.sampled_from([0.25, 0.3, 1.0, 2.0, 7.5]), algorithms, st.data())
def test_objective_never_rises_on_tied_data(X, lam, algorithm, data):
    weights = data.draw(arrays(np.float64, len(X), elements=st.sampled_from([0, 0.5, 1, 2])))
    weights[data.draw(st.integers(0, len(X) - 1))] = 1
    cap = data.draw(st.sampled_from([None, 1, 3]))
    model = DPMeans(lam=lam, algorithm=algorithm, max_clusters=cap).fit(X, sample_weight=weights)
    check_state(model, X, weights)
    assert model.n_iter_ < 300
    assert model.n_clusters_ <= min(cap or len(X), len(X))


@pytest.mark.filterwarnings("ignore:one cluster is left")  # and says so
@given(tied_data, st.sampled_from([0.25, 0.3, 1.0, 2.0, 7.5]), algorithms)
def test_tied_data_has_the_objective_of_the_twin(X, lam, algorithm):
    model = DPMeans(lam=lam, algorithm=algorithm).fit(X)
    twin = getattr(twins.dpmeans, algorithm)(X, lam)
    np.testing.assert_allclose(model.objective_, twin.objective, rtol=1e-9)


# So few different rows that most of them meet a center at distance zero.
grids = st.tuples(st.integers(1, 40), st.integers(1, 2)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(0, 3))
)


@pytest.mark.filterwarnings("ignore:one cluster is left")  # and says so
@settings(max_examples=300)
@given(grids, st.sampled_from([0.01, 0.2, 0.6, 1.0, 2.1]), algorithms)
@example(np.array([[2.0], [0], [1], [2], [1], [0], [0]]), 0.01, "delayed")
def test_grids_have_the_clusters_of_the_twin(X, lam, algorithm):
    """Two centers at one place would be a cluster too many."""
    model = DPMeans(lam=lam, algorithm=algorithm).fit(X)
    twin = getattr(twins.dpmeans, algorithm)(X, lam)
    check_state(model, X)
    assert len(np.unique(model.cluster_centers_, axis=0)) == model.n_clusters_ == twin.n_clusters
    np.testing.assert_allclose(model.objective_, twin.objective, rtol=1e-9)


@given(general_data(), guesses, algorithms, st.booleans())
def test_general_data_has_the_labels_of_the_twin(X, k, algorithm, single):
    X = X.astype(np.float32 if single else np.float64)
    lam = penalty(X, k)
    model = DPMeans(lam=lam, algorithm=algorithm).fit(X)
    twin = getattr(twins.dpmeans, algorithm)(X, lam)
    if algorithm == "delayed":
        assert len(set(zip(model.labels_.tolist(), twin.labels.tolist(), strict=True))) == (
            model.n_clusters_
        )
    else:
        assert np.array_equal(model.labels_, twin.labels)
    assert model.n_clusters_ == twin.n_clusters
    assert model.n_iter_ == twin.n_iter
    check_state(model, X)


@given(general_data(), guesses, algorithms, st.sampled_from([-1.0, 3.0, 100.0]))
def test_translation(X, k, algorithm, offset):
    shift = offset * np.abs(X).max()
    lam = penalty(X, k)
    model_a = DPMeans(lam=lam, algorithm=algorithm).fit(X)
    model_b = DPMeans(lam=lam, algorithm=algorithm).fit(X + shift)
    assert_same_clusters(model_a, model_b, algorithm)
    np.testing.assert_allclose(model_b.objective_path_, model_a.objective_path_, rtol=1e-9)


@given(general_data(), guesses, algorithms, st.sampled_from([-1.0, 0.037, 5000.0]))
def test_scale(X, k, algorithm, factor):
    """lam is in squared data units."""
    lam = penalty(X, k)
    model_a = DPMeans(lam=lam, algorithm=algorithm).fit(X)
    model_b = DPMeans(lam=lam * factor**2, algorithm=algorithm).fit(X * factor)
    assert_same_clusters(model_a, model_b, algorithm)
    np.testing.assert_allclose(
        model_b.objective_path_, factor**2 * model_a.objective_path_, rtol=1e-9
    )


@given(general_data(), guesses, st.sampled_from([-1.0, 0.037, 5000.0]))
def test_scale_of_the_penalty(X, k, factor):
    k = min(k, len(X))
    assume(len(X) > 1)
    one, two = farthest_first_lambda(X, k), farthest_first_lambda(X * factor, k)
    np.testing.assert_allclose(two, factor**2 * one, rtol=1e-9)


@given(general_data(), guesses, algorithms, st.randoms(use_true_random=False))
def test_order_of_columns(X, k, algorithm, random):
    columns = list(range(X.shape[1]))
    random.shuffle(columns)
    lam = penalty(X, k)
    model_a = DPMeans(lam=lam, algorithm=algorithm).fit(X)
    model_b = DPMeans(lam=lam, algorithm=algorithm).fit(X[:, columns])
    assert_same_clusters(model_a, model_b, algorithm)
    np.testing.assert_allclose(model_b.objective_path_, model_a.objective_path_, rtol=1e-9)


@given(general_data(), guesses, algorithms)
def test_a_constant_column_changes_nothing(X, k, algorithm):
    lam = penalty(X, k)
    one = DPMeans(lam=lam, algorithm=algorithm).fit(X)
    two = DPMeans(lam=lam, algorithm=algorithm).fit(np.column_stack([X, np.full(len(X), 0.1)]))
    assert_same_clusters(one, two, algorithm)
    np.testing.assert_allclose(two.cluster_centers_[:, -1], 0.1, rtol=1e-14)


@given(general_data(60), guesses, st.data())
def test_weighted_objective_is_that_of_repeated_rows(X, k, data):
    """For given labels: one sweep at one penalty too high to create, from the same centers."""
    repeats = data.draw(arrays(np.int64, len(X), elements=st.integers(0, 4)))
    repeats[0] += 1
    init = X[: min(k, len(X))]
    weighted = DPMeans(lam=1e30, init=init).fit(X, sample_weight=repeats)
    repeated = DPMeans(lam=1e30, init=init).fit(np.repeat(X, repeats, axis=0))
    assert np.array_equal(np.repeat(weighted.labels_, repeats), repeated.labels_)
    atol = 1e-14 * np.square(X).sum()
    np.testing.assert_allclose(weighted.inertia_, repeated.inertia_, rtol=1e-9, atol=atol)


@given(general_data(), guesses)
def test_no_better_single_move_after_collapsed(X, k):
    """At its fixed point, moving any one point to any cluster, or out, gains nothing."""
    lam = penalty(X, k)
    model = DPMeans(lam=lam, algorithm="collapsed").fit(X)
    labels, ones = model.labels_.astype(int), np.ones(len(X))
    for i in np.linspace(0, len(X) - 1, min(len(X), 8)).astype(int):
        for c in range(model.n_clusters_ + 1):
            trial = labels.copy()
            trial[i] = c
            trial, kept = twins.exact.without_gaps(trial)
            centers = twins.exact.weighted_means(X, ones, trial)
            value = twins.exact.sum_of_squares(X, ones, trial, centers) + lam * len(kept)
            assert value >= model.objective_ * (1 - 1e-9)


@given(general_data(), guesses)
def test_no_far_point_is_left(X, k):
    """Algorithm 1 stops with every point within lam of its center, the nearest one."""
    lam = penalty(X, k)
    for algorithm in ("serial", "delayed"):
        model = DPMeans(lam=lam, algorithm=algorithm).fit(X)
        labels, distances = twins.exact.nearest(X, model.cluster_centers_)
        assert np.array_equal(labels, model.labels_)
        assert distances.max() <= lam


@given(general_data(), guesses, st.integers(1, 50))
def test_minibatch_leaves_a_consistent_state(X, k, batch_size):
    model = MiniBatchDPMeans(lam=penalty(X, k), batch_size=batch_size, random_state=0).fit(X)
    assert np.array_equal(model.labels_, twins.exact.nearest(X, model.cluster_centers_)[0])
    assert np.array_equal(np.unique(model.labels_), np.arange(model.n_clusters_))
    assert np.isfinite(model.objective_)


@given(general_data(), guesses)
def test_farthest_first(X, k):
    k = min(k, len(X))
    expected = twins.penalty.farthest_first(X, k)
    np.testing.assert_allclose(farthest_first_lambda(X, k), expected, rtol=1e-9)


# Features

rules = st.sampled_from(["sweep", "collapsed", "stepwise", "coordinate", "exact"])


@st.composite
def sums_of_features(draw, n_max=50):
    """Noisy sums of random features, in general position, on any scale."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, k = draw(st.integers(2, n_max)), draw(st.integers(2, 12)), draw(st.integers(1, 5))
    X = rng.integers(0, 2, size=(n, k)) @ rng.normal(size=(k, d))
    X += draw(st.sampled_from([0.05, 0.3, 1.0])) * rng.normal(size=(n, d))
    return X * 10.0 ** draw(st.integers(-4, 4))


def features(X, rule, share, **options):
    """An estimator that uses this rule, its lam a share of the data's square."""
    options = {"n_init": 3, "random_state": 0, **options}
    if rule in ("coordinate", "exact"):
        return KFeatures(min(3, len(X)), assign=rule, **options)
    lam = share * float(np.square(X, dtype=float).sum())
    return BPMeans(lam=max(lam, 1e-9), algorithm=rule, **options)


shares = st.sampled_from([1e-3, 0.02, 0.1, 0.4])


@given(sums_of_features(), shares, rules, st.data())
def test_features_have_the_objective_of_their_assignments(X, share, rule, data):
    weights = data.draw(arrays(np.float64, len(X), elements=st.sampled_from([0, 0.5, 1, 7])))
    weights[: min(3, len(X))] = 1
    model = features(X, rule, share, n_swaps=data.draw(st.sampled_from([0, 2])))
    check_features(model.fit(X), X)
    check_features(model.fit(X, sample_weight=weights), X, weights)


@given(tied_data, st.sampled_from([0.25, 0.3, 1.0, 2.0, 7.5]), rules, st.data())
def test_features_of_tied_data(X, lam, rule, data):
    weights = data.draw(arrays(np.float64, len(X), elements=st.sampled_from([0.5, 1, 2])))
    model = features(X, rule, 0.1, n_swaps=data.draw(st.sampled_from([0, 2])))
    if "lam" in model.get_params():
        cap = data.draw(st.sampled_from([None, 1, 3]))
        model.set_params(lam=lam, max_features=cap)
        assert model.fit(X).n_components_ <= min(cap or len(X), len(X))
    check_features(model.fit(X), X)
    check_features(model.fit(X, sample_weight=weights), X, weights)


@given(tied_data, st.data())
def test_features_from_any_start(X, data):
    """Also one whose columns depend on each other, are equal, or have no user."""
    start = data.draw(arrays(np.int8, (len(X), min(4, len(X))), elements=st.integers(0, 1)))
    for rule in ("sweep", "collapsed"):
        model = features(X, rule, 0.03, init=start).fit(X)
        check_features(model, X)
        fit = twins.features.least_squares(X, start, np.ones(len(X)))
        value = np.square(X - start @ fit).sum() + model.lam_ * start.shape[1]
        assert model.objective_ <= value * (1 + 1e-9)
    for assign in ("coordinate", "exact"):
        model = KFeatures(start.shape[1], assign=assign, init=start).fit(X)
        check_features(model, X)
        assert model.objective_ <= np.square(X - start @ fit).sum() * (1 + 1e-9) + 1e-12


@given(
    sums_of_features(),
    shares,
    st.sampled_from(["sweep", "collapsed"]),
    st.randoms(use_true_random=False),
)
def test_order_of_columns_of_features(X, share, rule, random):
    """(With K fixed, columns of Z may depend on each other on the way, and rows of Z tie.)

    One start: two that end at the same objective are told apart by its rounding.
    """
    columns = list(range(X.shape[1]))
    random.shuffle(columns)
    model_a = features(X, rule, share, n_init=1).fit(X)
    model_b = features(X, rule, share, n_init=1).fit(X[:, columns])
    assert np.array_equal(model_a.assignments_, model_b.assignments_)
    np.testing.assert_allclose(model_b.objective_path_, model_a.objective_path_, rtol=1e-9)
    reach = 1e-9 * np.abs(X).max()
    np.testing.assert_allclose(model_b.components_, model_a.components_[:, columns], atol=reach)


@given(sums_of_features(), shares, rules, st.sampled_from([-2.0, 0.5, 2.0**60]))
def test_scale_of_features(X, share, rule, factor):
    """lam is in squared data units, and a power of two changes no digit."""
    model_a = features(X, rule, share).fit(X)
    model_b = features(X, rule, share)
    if "lam" in model_b.get_params():
        model_b.set_params(lam=model_a.lam_ * factor**2)
    model_b.fit(X * factor)
    assert np.array_equal(model_a.assignments_, model_b.assignments_)
    assert np.array_equal(model_b.components_, factor * model_a.components_)
    np.testing.assert_allclose(
        model_b.objective_path_, factor**2 * model_a.objective_path_, rtol=1e-14
    )


@given(sums_of_features(), st.integers(0, 6), st.sampled_from(["coordinate", "exact"]))
def test_path_of_features(X, seed, assign):
    path = feature_path(X, 4, n_init=2, assign=assign, random_state=seed)
    assert np.all(np.diff(path.error) <= 1e-14 * path.error[0])
    hull = ~np.isnan(path.lam_low)
    for k in path.n_components[hull]:
        for lam in (path.lam_low[k], min(path.lam_high[k], 2 * path.error[0])):
            values = path.error + lam * path.n_components
            assert values[k] <= values.min() + 1e-12 * path.error[0]


@given(sums_of_features(), sums_of_features(), st.sampled_from(["coordinate", "exact"]))
def test_transform_is_where_no_flip_helps(X, new, assign):
    model = KFeatures(min(3, len(X)), assign=assign, n_init=1, random_state=0).fit(X)
    new = np.resize(new, (20, X.shape[1]))
    Z = model.transform(new)
    error = np.square(new - Z @ model.components_).sum(axis=1)
    for k in range(model.n_components_):
        flipped = Z.copy()
        flipped[:, k] = 1 - Z[:, k]
        other = np.square(new - flipped @ model.components_).sum(axis=1)
        assert np.all(error <= other + 1e-12 * np.square(new).sum(axis=1) + 1e-12 * other)


def test_never_rises_notices_a_rise():
    assert never_rises(np.array([2.0, 1.0, 1.0]))
    assert not never_rises(np.array([2.0, 1.0, 1.0 + 1e-8]))
