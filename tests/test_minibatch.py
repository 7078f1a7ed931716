"""MiniBatchDPMeans: one batch against the twin, a stream, and fit as a whole."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
import twins.dpmeans
import twins.exact
import twins.penalty
from helpers import seeds
from problems import blobs
from scipy.sparse import csr_matrix
from sklearn.metrics import adjusted_rand_score

from smallvar import DPMeans, MiniBatchDPMeans, SphericalDPMeans
from smallvar._core import frame


def stream(batches, lam, weights=None, max_clusters=None):
    """The twin fed one batch after the other; starts at the mean of the first."""
    weights = [None] * len(batches) if weights is None else weights
    first = np.ones(len(batches[0])) if weights[0] is None else weights[0]
    centers, counts = np.average(batches[0], axis=0, weights=first)[None], np.zeros(1)
    for X, w in zip(batches, weights, strict=True):
        labels, centers, counts = twins.dpmeans.minibatch_step(
            X, centers, counts, lam, weights=w, max_clusters=max_clusters
        )
        used = counts > 0
        centers, counts = centers[used], counts[used]
        labels = twins.exact.nearest(X, centers)[0]
    return centers, labels


def test_worked_example():
    """Of the mean, 23/3, nothing remains: 1 opens a center (44.4 away), then 12 (18.8)."""
    model = MiniBatchDPMeans(lam=9.0)
    model.partial_fit([[1.0], [10.0], [12.0]])
    np.testing.assert_allclose(model.cluster_centers_[:, 0], [1, 11])
    model.partial_fit([[-1.0]])
    np.testing.assert_allclose(model.cluster_centers_[:, 0], [0, 11])
    model.partial_fit([[30.0], [14.0], [32.0]])
    np.testing.assert_allclose(model.cluster_centers_[:, 0], [0, 12, 31])
    assert model.n_clusters_ == 3
    assert model.predict([[5.9], [21.0], [100.0]]).tolist() == [0, 1, 2]


@seeds(24)
def test_stream_equals_twin(seed):
    rng = np.random.default_rng(seed)
    d = 1 + seed % 6
    batches = [blobs(rng, int(rng.integers(5, 700)), d, 12, spread=0.3) for _ in range(4)]
    if seed % 4 == 1:
        batches = [X.astype(np.float32) for X in batches]
    if seed % 4 == 2:
        batches = [X + 1e6 for X in batches]
    weights = [rng.gamma(1.0, size=len(X)) for X in batches] if seed % 3 == 0 else None
    cap = 6 if seed % 5 == 0 else None
    lam = 0.93 * twins.penalty.farthest_first(batches[0], 4 + seed % 7)
    model = MiniBatchDPMeans(lam=lam, max_clusters=cap)
    for i, X in enumerate(batches):
        model.partial_fit(X, sample_weight=None if weights is None else weights[i])
        seen = slice(0, i + 1)
        centers, labels = stream(
            batches[seen], lam, None if weights is None else weights[seen], cap
        )
        rounding = 1e-13 * max(1.0, np.abs(X).max())
        np.testing.assert_allclose(model.cluster_centers_, centers, rtol=0, atol=rounding)
        assert np.array_equal(model.predict(X), labels)
        assert model.n_clusters_ == len(centers)


def test_zero_weight_rows_change_nothing():
    rng = np.random.default_rng(0)
    X = rng.random((200, 2))
    ghosts = np.vstack([X, 100 * rng.random((100, 2))])
    w = np.r_[np.ones(200), np.zeros(100)]
    plain = MiniBatchDPMeans(lam=0.1).partial_fit(X)
    model = MiniBatchDPMeans(lam=0.1).partial_fit(ghosts, sample_weight=w)
    np.testing.assert_allclose(model.cluster_centers_, plain.cluster_centers_, atol=1e-13)
    assert np.array_equal(model.labels_, model.predict(ghosts))


def test_zero_weight_row_at_the_vanishing_mean():
    """4 is nearest to the mean, 5, which nobody with weight joins: it must find another."""
    model = MiniBatchDPMeans(lam=9.0).partial_fit([[0.0], [4.0], [10.0]], sample_weight=[1, 0, 1])
    assert model.cluster_centers_.tolist() == [[0.0], [10.0]]
    assert model.labels_.tolist() == [0, 0, 1]


def test_state_after_partial_fit():
    """Labels and objective belong to the centers as they are now."""
    rng = np.random.default_rng(1)
    model = MiniBatchDPMeans(lam=0.1)
    for _ in range(3):
        X = rng.random((300, 2))
        model.partial_fit(X)
        labels, distances = twins.exact.nearest(X, model.cluster_centers_)
        assert np.array_equal(model.labels_, labels)
        np.testing.assert_allclose(model.inertia_, distances.sum(), rtol=1e-9)
        np.testing.assert_allclose(model.objective_, -model.score(X), rtol=1e-9)


def test_penalty_for_a_guess_is_frozen_at_the_first_batch():
    rng = np.random.default_rng(0)
    A, B = rng.random((100, 2)), 5 * rng.random((100, 2))
    model = MiniBatchDPMeans(lam="farthest-first", guess=5).partial_fit(A)
    np.testing.assert_allclose(model.lam_, twins.penalty.farthest_first(A, 5), rtol=1e-12)
    model.partial_fit(B)
    np.testing.assert_allclose(model.lam_, twins.penalty.farthest_first(A, 5), rtol=1e-12)
    model.fit(B)
    np.testing.assert_allclose(model.lam_, twins.penalty.farthest_first(B, 5), rtol=1e-12)


def test_fit_finds_blobs():
    rng = np.random.default_rng(0)
    truth = rng.integers(20, size=20_000)
    X = 10 * rng.random((20, 8))[truth] + 0.2 * rng.normal(size=(20_000, 8))
    model = MiniBatchDPMeans(lam=9.0, batch_size=500, random_state=0).fit(X)
    assert model.n_clusters_ == 20
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    exact = DPMeans(lam=9.0).fit(X)
    assert model.objective_ < exact.objective_ * 1.05


@pytest.mark.parametrize("batch_size", [10, 1000, 10**6])
def test_state_after_fit(batch_size):
    X = blobs(np.random.default_rng(3), 3000, 3, 15)
    model = MiniBatchDPMeans(lam=0.15, batch_size=batch_size, random_state=0).fit(X)
    assert model.labels_.dtype == np.int32
    assert np.array_equal(model.labels_, model.predict(X))
    assert np.array_equal(np.unique(model.labels_), np.arange(model.n_clusters_))
    sse = twins.exact.sum_of_squares(X, np.ones(3000), model.labels_, model.cluster_centers_)
    np.testing.assert_allclose(model.inertia_, sse, rtol=1e-9)
    np.testing.assert_allclose(model.objective_, sse + 0.15 * model.n_clusters_, rtol=1e-9)
    np.testing.assert_allclose(model.score(X), -model.objective_, rtol=1e-9)


def test_cap_and_given_centers():
    rng = np.random.default_rng(0)
    X = rng.random((2000, 2))
    capped = MiniBatchDPMeans(lam=0.01, max_clusters=7, batch_size=100, random_state=0).fit(X)
    assert capped.n_clusters_ == 7
    truth = rng.integers(2, size=2000)
    X[:, 0] += 3 * truth
    init = np.array([[2.9, 0.0], [1.1, 0.0]])
    two = MiniBatchDPMeans(lam=1e6, init=init, batch_size=100, random_state=0).fit(X)
    assert np.array_equal(two.labels_, 1 - truth)
    means = [X[truth == 1].mean(axis=0), X[truth == 0].mean(axis=0)]
    np.testing.assert_allclose(two.cluster_centers_, means, atol=0.02)


def test_fit_forgets_partial_fit():
    X = blobs(np.random.default_rng(3), 500, 3, 5)
    fresh = MiniBatchDPMeans(lam=0.1, random_state=0).fit(X)
    used = MiniBatchDPMeans(lam=0.1, random_state=0).partial_fit(X + 50).fit(X)
    assert used.cluster_centers_.tobytes() == fresh.cluster_centers_.tobytes()


def test_batches_without_weight_are_passed_over():
    rng = np.random.default_rng(0)
    X, weights = rng.random((40, 2)), np.zeros(40)
    X[7], weights[7] = [5.0, 5.0], 2.0
    model = MiniBatchDPMeans(lam=0.1, batch_size=3, random_state=0).fit(X, sample_weight=weights)
    np.testing.assert_allclose(model.cluster_centers_, [[5.0, 5.0]])
    assert model.labels_.tolist() == [0] * 40
    assert model.objective_ == pytest.approx(0.1)


def test_a_stream_is_summed_exactly():
    """Batches of ever larger, finer and farther rows, one cluster: the mean of all of them."""
    rng = np.random.default_rng(0)
    model, seen, weights = MiniBatchDPMeans(lam=np.inf), [], []
    for i in range(60):
        X = rng.normal(size=(20, 3)) * [10.0**i, 10.0**-i, 1.0] + [0, 0, 1e9 * (i < 30)]
        w = rng.gamma(1.0, size=20) if i % 2 else None
        model.partial_fit(X, sample_weight=w)
        seen += X.tolist()
        weights += [1.0] * 20 if w is None else w.tolist()
    parts = zip(weights, seen, strict=True)
    terms = [[Fraction(w) * Fraction(x) for x in row] for w, row in parts]
    weight_sum = sum(map(Fraction, weights))
    assert model.cluster_weights_.tolist() == [float(weight_sum)]
    for mean, column in zip(model.cluster_centers_[0], zip(*terms, strict=True), strict=True):
        size = sum(map(abs, column)) / weight_sum
        assert abs(Fraction(mean) - sum(column) / weight_sum) <= size * Fraction(2.0**-52)


def test_what_replaced_what_was_learned_counts():
    """Centers that were moved by hand, weights that were made to fade: in place, too."""
    model = MiniBatchDPMeans(lam=4.0).partial_fit([[0.0, 0.0], [9.0, 9.0]])
    model.cluster_centers_ = model.cluster_centers_ + 100.0
    model.partial_fit([[100.0, 100.0]])
    assert model.cluster_centers_.tolist() == [[100.0, 100.0], [109.0, 109.0]]
    model = MiniBatchDPMeans(lam=4.0).partial_fit([[0.0, 0.0]] * 10)
    model.cluster_weights_ *= 0.25
    model.partial_fit([[1.0, 1.0]])
    assert model.cluster_weights_.tolist() == [3.5]
    np.testing.assert_allclose(model.cluster_centers_, [[1 / 3.5, 1 / 3.5]], rtol=1e-15)
    model = MiniBatchDPMeans(lam=4.0, random_state=0).fit([[0.0], [9.0]])
    model.cluster_weights_[:] = 3.0
    assert model.partial_fit([[1.0]]).cluster_centers_.tolist() == [[0.25], [9.0]]


def test_rows_that_leave_no_rounding_behind():
    """Batches in any order, and split in any way, to the same clusters: the same bits."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2)) + 100 * np.arange(6).repeat(500)[:, None]
    init = 100.0 * np.arange(6)[:, None] + np.zeros(2)
    states = set()
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(3000)
        model = MiniBatchDPMeans(lam=1e9, init=init)
        for rows in np.array_split(order, 3 + 7 * seed):
            model.partial_fit(X[rows])
        states.add((model.cluster_centers_.tobytes(), model.cluster_weights_.tobytes()))
    assert len(states) == 1
    copy = pickle.loads(pickle.dumps(model)).partial_fit(X[:10])
    assert np.array_equal(copy.cluster_centers_, model.partial_fit(X[:10]).cluster_centers_)


def test_rows_whose_sums_leave_float64():
    """Equal rows have no spread that would, but their sum does."""
    model = MiniBatchDPMeans(lam=4.0)
    with pytest.raises(ValueError, match="below 1e300"):
        model.partial_fit(np.full((3, 2), 1e305))
    assert not hasattr(model, "cluster_centers_")


def test_sparse_centers_do_not_stay():
    """They are neither equal to what was nor a number that numpy could compare with it."""
    X = np.arange(12.0)[:, None]
    model = MiniBatchDPMeans(lam=0.5).partial_fit(X).set_params(init=csr_matrix(X[:2]))
    with pytest.raises(ValueError, match="init must stay what it was at the first batch"):
        model.partial_fit(X)


def test_what_is_honored_in_mid_stream():
    X = np.arange(12.0)[:, None]
    model = MiniBatchDPMeans(lam=0.5, max_clusters=3, guess=2).partial_fit(X)
    assert model.n_clusters_ == 3
    model.set_params(max_clusters=5, guess=9, n_threads=1, batch_size=2, max_iter=1)
    assert model.partial_fit(X).n_clusters_ == 5
    assert model.set_params(max_clusters=2).partial_fit(X).n_clusters_ == 5  # none opens


@seeds(24)
def test_small_batches_are_as_by_sweeps(monkeypatch, seed):
    """Of any size, layout and weights, clusters opening or not: the same bits either way."""
    rng = np.random.default_rng(seed)
    d, k = 1 + seed % 5, 1 + seed % 9
    start = blobs(rng, 60, d, k)
    batches = [start, *(blobs(rng, 1 + 40 * (i % 5), d, k) + 0.05 * i for i in range(9))]
    if seed % 2:
        batches = [np.asfortranarray(X.astype(np.float32)) for X in batches]
    weights = [rng.gamma(1.0, size=len(X)) * (rng.random(len(X)) < 0.8) for X in batches]
    for w in weights:
        w[0] = 1.5
    sparse = [csr_matrix(X) for X in batches] if seed % 6 == 2 else batches

    def states():
        model = MiniBatchDPMeans(lam=0.1, n_threads=1)
        for X, w in zip(sparse, weights, strict=True):
            model.partial_fit(X, sample_weight=w if seed % 3 else None)
            yield model.cluster_centers_.tobytes(), model.cluster_weights_.tobytes()
            yield (
                model.labels_.tobytes(),
                model.inertia_,
                model.score(X),
                model.predict(X).tobytes(),
            )

    few = list(states())
    monkeypatch.setattr(frame, "FEW_PRODUCTS", -1)
    assert list(states()) == few
    monkeypatch.setattr(frame, "FEW_SUMMED", -1)
    assert list(states()) == few


def test_small_batches_keep_every_bit():
    """A bin of the sums would cut off those of a number that is small among its column."""
    X = np.array([[0.0, 7.0], [100.0, 2.0**-22 / 3]])
    model = MiniBatchDPMeans(lam=4.0).partial_fit(X)
    assert np.array_equal(model.cluster_centers_, X)
    tiny = np.array([[0.0, 5e-324], [100.0, 1e-310]])
    assert np.array_equal(MiniBatchDPMeans(lam=4.0).partial_fit(tiny).cluster_centers_, tiny)


@pytest.mark.parametrize(
    "init",
    [
        [[0.0, 0.5], [0.0, 0.5], [5.0, 5.0]],
        [[-0.0, 0.5], [5.0, 5.0], [0.0, 0.5], [5.0, 5.0]],
    ],
)
@pytest.mark.parametrize("batch_size", [10, 1000])
def test_copies_of_given_centers_vanish(init, batch_size):
    """As in DPMeans: a copy gets no row, since ties go to the first."""
    rng = np.random.default_rng(0)
    X = 0.1 * rng.normal(size=(40, 2)) + np.repeat([[0.0, 0.5], [5.0, 5.0]], 20, axis=0)
    expected = DPMeans(lam=4.0, init=init).fit(X)
    model = MiniBatchDPMeans(lam=4.0, init=init, batch_size=batch_size, random_state=0).fit(X)
    assert model.n_clusters_ == expected.n_clusters_ == 2
    assert np.array_equal(model.labels_, expected.labels_)
    parts = MiniBatchDPMeans(lam=4.0, init=init)
    for begin in (0, 20):
        parts.partial_fit(X[begin : begin + 20])
        assert parts.n_clusters_ == 2
    np.testing.assert_allclose(parts.cluster_centers_, expected.cluster_centers_)
    assert parts.cluster_weights_.tolist() == [20, 20]
    directions = SphericalDPMeans(lam=0.1, init=init).partial_fit(np.add(X[:20], [0.5, 0.0]))
    assert directions.n_clusters_ == 2


# ---- streams that forget


def faded(batches, lam, half_life, weights):
    """The twin for a stream that forgets: before a batch, all weights fade by its weight."""
    w = weights[0]
    centers, counts = np.average(batches[0], axis=0, weights=w)[None], np.zeros(1)
    for X, w in zip(batches, weights, strict=True):
        counts = counts * 2.0 ** (-w.sum() / half_life)
        _, centers, counts = twins.dpmeans.minibatch_step(X, centers, counts, lam, weights=w)
        if len(batches[0]) == len(X) and X is batches[0]:
            centers, counts = centers[counts > 0], counts[counts > 0]
    return centers, counts


@seeds(24)
def test_stream_that_forgets_equals_twin(seed):
    rng = np.random.default_rng(seed)
    d, n = 1 + seed % 6, int(rng.integers(1, 400))
    batches = [blobs(rng, n, d, 6, spread=0.3) for _ in range(25)]
    if seed % 4 == 1:
        batches = [X.astype(np.float32) for X in batches]
    if seed % 4 == 2:
        batches = [X + 1e3 for X in batches]
    weights = [rng.gamma(1.0, size=len(X)) if seed % 3 == 0 else np.ones(n) for X in batches]
    half_life = float(rng.choice([0.3, 2.7, 40.0])) * n
    lam = 0.93 * twins.penalty.farthest_first(np.vstack(batches), 5)
    model = MiniBatchDPMeans(lam=lam, half_life=half_life)
    for X, w in zip(batches, weights, strict=True):
        model.partial_fit(X, sample_weight=w if seed % 3 == 0 else None)
    centers, counts = faded(batches, lam, half_life, weights)
    scale = max(1.0, np.abs(batches[0]).max())
    np.testing.assert_allclose(model.cluster_centers_, centers, rtol=0, atol=1e-13 * scale)
    np.testing.assert_allclose(model.cluster_weights_, counts, rtol=1e-12, atol=1e-60 * n)


@pytest.mark.parametrize("half_life", [0.9, 7.0, 1e4])
def test_a_center_is_the_mean_with_faded_weights(half_life):
    """All batches at once: row i has the weight 2^(-age / half_life)."""
    rng = np.random.default_rng(3)
    X, sizes = rng.normal(size=(900, 2)) + np.linspace(0, 5, 900)[:, None], [1, 8, 200, 291, 400]
    model = MiniBatchDPMeans(lam=1e6, half_life=half_life)
    ends = np.cumsum(sizes)
    for end, size in zip(ends, sizes, strict=True):
        model.partial_fit(X[end - size : end])
        age = end - np.repeat(ends, sizes)[:end]
        weight = 2.0 ** (-age / half_life)
        expected = np.average(X[:end], axis=0, weights=weight)
        np.testing.assert_allclose(model.cluster_centers_, [expected], rtol=1e-13)
        np.testing.assert_allclose(model.cluster_weights_, [weight.sum()], rtol=1e-13)


def test_a_center_follows_rows_that_move():
    """A stream at constant speed: the mean lags by the mean age, about half_life / ln 2 rows."""
    rng = np.random.default_rng(0)
    still, forgets = (MiniBatchDPMeans(lam=150.0, half_life=h) for h in (None, 200.0))
    for step in range(200):
        X = rng.normal(size=(20, 2))
        X[::2] += [0.05 * step, 0.0]
        X[1::2] -= [20.0, 0.0]
        still.partial_fit(X), forgets.partial_fit(X)
    at = forgets.cluster_centers_
    moving = at[:, 0].argmax()
    lag = 0.05 / 20 * 200 / np.log(2)
    assert abs(at[moving, 0] - (0.05 * 199 - lag)) < 0.3
    assert np.abs(at[1 - moving] + [20.0, 0.0]).max() < 0.3
    far = np.abs(still.cluster_centers_[:, 0] - 0.05 * 199)
    assert far.min() > 2.0  # without a half-life the mean of all rows stays behind


def test_a_cluster_without_rows_fades_but_stays():
    model = MiniBatchDPMeans(lam=4.0, half_life=2.0).partial_fit([[0.0], [9.0]])
    for _ in range(3):
        model.partial_fit([[9.0], [9.0]])
    assert model.cluster_centers_.tolist() == [[0.0], [9.0]]
    assert model.cluster_weights_.tolist() == [0.125, 2 + 1 + 0.5 + 0.125]
    model.partial_fit([[1.0], [9.0]])
    np.testing.assert_allclose(model.cluster_centers_[0], [1 / (1 + 0.0625)], rtol=1e-15)
    for _ in range(3000):
        model.partial_fit([[9.0]])
    assert model.cluster_weights_[0] == 0.0
    assert model.predict([[1.0]]).tolist() == [0]
    assert model.partial_fit([[2.0]]).cluster_centers_.tolist() == [[2.0], [9.0]]
    # clusters may be dropped between batches
    model.partial_fit([[9.0]] * 8)
    kept = model.cluster_weights_ > 0.5
    model.cluster_centers_ = model.cluster_centers_[kept]
    model.cluster_weights_ = model.cluster_weights_[kept]
    before = model.cluster_weights_[0]
    assert model.partial_fit([[9.0], [9.0]]).cluster_centers_.tolist() == [[9.0]]
    assert model.cluster_weights_[0] == before / 2 + 2


@pytest.mark.parametrize("half_life", [1e-300, 5e-324, 1.0, 1e300])
def test_any_half_life(half_life):
    model = MiniBatchDPMeans(lam=4.0, half_life=half_life)
    for x in range(70):
        model.partial_fit([[0.01 * x]])
    assert np.isfinite(model.cluster_centers_).all() and np.isfinite(model.cluster_weights_).all()
    if half_life < 1:
        assert model.cluster_centers_.tolist() == [[0.01 * 69]]


def test_forgetting_goes_on_after_fit_and_pickling():
    """Rows of fit count the same; a pickled stream goes on with the same bits."""
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(300, 3)), rng.normal(size=(40, 3)) + 1
    model = MiniBatchDPMeans(lam=1e4, half_life=100.0, max_iter=1).fit(X)
    plain = MiniBatchDPMeans(lam=1e4, max_iter=1).fit(X)
    assert np.array_equal(model.cluster_centers_, plain.cluster_centers_)
    model.partial_fit(Y)
    copy = pickle.loads(pickle.dumps(model))
    share = 300 * 2.0 ** (-40 / 100)
    expected = (share * plain.cluster_centers_[0] + Y.sum(axis=0)) / (share + 40)
    np.testing.assert_allclose(model.cluster_centers_[0], expected, rtol=1e-12)
    assert np.array_equal(
        copy.partial_fit(Y).cluster_centers_, model.partial_fit(Y).cluster_centers_
    )
    model.fit(X)  # from scratch
    assert np.array_equal(model.cluster_weights_, plain.cluster_weights_)


def test_order_threads_and_units_of_a_stream_that_forgets():
    rng = np.random.default_rng(2)
    batches = [rng.normal(size=(500, 3)) for _ in range(4)]
    heavy = [rng.integers(1, 4, size=500).astype(float) for _ in range(4)]

    def centers(order=slice(None), scale=1.0, n_threads=1, repeat=False):
        model = MiniBatchDPMeans(lam=1e4, half_life=333.0, n_threads=n_threads)
        for X, w in zip(batches, heavy, strict=True):
            if repeat:
                model.partial_fit(np.repeat(X, w.astype(int), axis=0))
            else:
                model.partial_fit(scale * X[order], sample_weight=w[order])
        return model.cluster_centers_ / scale

    first = centers()
    assert np.array_equal(first, centers(order=rng.permutation(500)))
    assert np.array_equal(first, centers(n_threads=3))
    assert np.array_equal(first, centers(scale=2.0**-30))
    np.testing.assert_allclose(first, centers(repeat=True), rtol=1e-12)


@pytest.mark.parametrize("half_life", [0, -1.0, np.nan, "10", True])
def test_half_life_is_checked(half_life):
    with pytest.raises((ValueError, TypeError), match="half_life must be"):
        MiniBatchDPMeans(half_life=half_life).partial_fit([[0.0], [1.0]])
