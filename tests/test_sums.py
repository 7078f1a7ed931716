"""Sums that depend on no order, partition or thread: the twin, fractions, fits."""

import math
from fractions import Fraction

import numpy as np
import pytest
import twins.exact
from helpers import fit_of_any_order, seeds
from problems import blobs
from smallvar._sweeps.sums import Layout, Sums, exact_total

from smallvar import DPMeans

K = 5


def rows(kind, n=3000, d=4, seed=0):
    """Data of some kind, weights or None, and labels."""
    rng = np.random.default_rng(seed)
    X, weights = rng.normal(size=(n, d)), None
    if kind == "far":
        X += np.resize([0, 3, 1e6, 1e12], d)
    elif kind == "scales":
        X *= np.resize([1e-100, 1e-5, 1e7, 1e100], d)
        X[:, 1] = 7.7
    elif kind == "outlier":
        X[n // 3, 1] = 1e12
        X[n // 2, 2] = -1e60
    elif kind == "tiny":
        X[:, 1] = 2.0 ** -rng.integers(0, 200, size=n) * X[:, 1]
    elif kind == "weights":
        weights = rng.gamma(1.0, size=n) * (rng.random(n) < 0.9)
        X[weights == 0] *= 1e6
    elif kind == "heavy":
        weights = 10.0 ** rng.integers(-10, 11, size=n)
    elif kind == "float32":
        X = X.astype(np.float32)
    elif kind == "Fortran order":
        X = np.asfortranarray(X)
    elif kind == "grid":
        X = np.rint(4 * X)
    return X, weights, rng.integers(K, size=n).astype(np.int32)


KINDS = (
    "plain", "far", "scales", "outlier", "tiny", "weights", "heavy", "float32", "Fortran order",
    "grid",
)  # fmt: skip
each_kind = pytest.mark.parametrize("kind", KINDS)


def part_of(weights, rows):
    return None if weights is None else weights[rows]


def sums_of(layout, X, weights, labels, n_threads=1):
    sums = Sums(layout, K)
    sums.add(X, labels, weights, n_threads)
    return sums


def state(sums):
    return sums.cells.tobytes(), sums.counts.tobytes()


@pytest.mark.parametrize("d", [1, 2, 3, 4, 19])
@each_kind
def test_equals_twin(kind, d):
    X, weights, labels = rows(kind, d=max(d, 4))
    X = X[:, -d:]
    layout = Layout(X, weights, 1)
    w = np.ones(len(X)) if weights is None else weights
    twin = twins.exact.layout(X.astype(float), w)
    assert np.array_equal(layout.origin, twin.origin)
    assert np.array_equal(layout.unit, twin.unit)
    assert (layout.width, layout.bins) == (twin.width, twin.bins)
    sums = sums_of(layout, X, weights, labels)
    total, weight_sums, _ = twins.exact.exact_sums(X.astype(float), w, labels, K, twin)
    assert np.array_equal(sums.totals[0], total)
    assert np.array_equal(sums.totals[1], weight_sums)
    assert np.array_equal(sums.counts, np.bincount(labels[w > 0], minlength=K))
    means = twins.exact.weighted_means(X.astype(float), w, labels)
    assert np.array_equal(sums.means, means)


@pytest.mark.parametrize("far", [0.0, 0.7, 100.3])
def test_mean_of_equal_rows_is_that_row(far):
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(50, 3)), 3) + far
    labels = np.repeat(np.arange(50, dtype=np.int32), rng.integers(1, 100, size=50))
    sums = Sums(Layout(X[labels], None, 1), 50)
    sums.add(X[labels], labels, None)
    assert np.array_equal(sums.means, X)


@pytest.mark.parametrize("n", [1365, 1366, 6001])  # the first are read one by one, then joined
@each_kind
def test_layout_of_many_rows_equals_twin(kind, n):
    X, weights, _ = rows(kind, n=n, d=4)
    X = X[:, :3].copy(order="K")
    layout = Layout(X, weights, 1)
    twin = twins.exact.layout(X.astype(float), np.ones(n) if weights is None else weights)
    assert np.array_equal(layout.origin, twin.origin)
    assert np.array_equal(layout.unit, twin.unit)
    assert (layout.width, layout.bins) == (twin.width, twin.bins)


@each_kind
def test_off_by_what_is_cut_off(kind):
    """From the true sum by 2^-47 units a row at most, but for the rounding of the sum itself."""
    X, weights, labels = rows(kind)
    layout = Layout(X, weights, 1)
    total, weight_sums = sums_of(layout, X, weights, labels).totals
    w = np.ones(len(X)) if weights is None else weights
    t = w[:, None] * (X - layout.origin)
    for c in range(K):
        n = np.count_nonzero(labels == c)
        for j in range(X.shape[1]):
            truth = math.fsum(t[labels == c, j])
            bound = n * 2.0**-47 * layout.unit[j] + 2.0**-51 * abs(truth)
            assert abs(total[c, j] - truth) <= bound
        np.testing.assert_allclose(weight_sums[c], math.fsum(w[labels == c]), rtol=2.0**-49)


@each_kind
def test_means_are_as_good_as_float64_can_tell(kind):
    """Where a column spans 60 orders of magnitude, too: within a few roundings of the truth."""
    X, weights, labels = rows(kind)
    means = sums_of(Layout(X, weights, 1), X, weights, labels).means
    w = np.ones(len(X)) if weights is None else weights
    for c in range(K):
        mine = (labels == c) & (w > 0)
        weight_sum = sum(map(Fraction, w[mine].tolist()))
        for j in range(X.shape[1]):
            x = X[mine, j].astype(float)
            truth = (
                sum(Fraction(a) * Fraction(b) for a, b in zip(w[mine], x, strict=True)) / weight_sum
            )
            size = float(
                sum(Fraction(a) * abs(Fraction(b)) for a, b in zip(w[mine], x, strict=True))
                / weight_sum
            )
            assert abs(float(Fraction(means[c, j]) - truth)) <= 2.0**-50 * size


@each_kind
@seeds(4)
def test_any_order_any_parts_any_tree(kind, seed):
    X, weights, labels = rows(kind)
    rng = np.random.default_rng(seed)
    layout = Layout(X, weights, 1)
    whole = state(sums_of(layout, X, weights, labels))
    order = rng.permutation(len(X))
    again = Layout(X[order], part_of(weights, order), 2)
    assert np.array_equal(again.magic, layout.magic)
    assert np.array_equal(again.origin, layout.origin)
    cuts = np.sort(rng.integers(0, len(X), size=9))
    parts = [
        sums_of(again, X[part], part_of(weights, part), labels[part])
        for part in np.split(order, cuts)
        if len(part)
    ]
    while len(parts) > 1:
        first, second = rng.choice(len(parts), 2, replace=False)
        parts[first].merge(parts[second])
        del parts[second]
    assert state(parts[0]) == whole


@each_kind
def test_rows_that_come_and_go_leave_nothing(kind):
    """A thousand moves of many rows: the sums are those of the labels in the end, bit for bit."""
    X, weights, labels = rows(kind, n=400)
    rng = np.random.default_rng(1)
    layout = Layout(X, weights, 1)
    sums, now = sums_of(layout, X, weights, labels), labels
    for _ in range(1000):
        subset = rng.permutation(len(X))[: rng.integers(1, 100)]
        to = now.copy()
        to[subset] = rng.integers(-1, K, size=len(subset))
        sums.move(X, now, to, weights)
        now = to
    sums.move(X, now, labels, weights)
    none = None if weights is None else weights[:0]
    sums.move(X[:0], now[:0], now[:0], none)
    assert state(sums) == state(sums_of(layout, X, weights, labels))
    sums.move(X, labels, np.full(len(X), -1, dtype=np.int32), weights)
    assert not sums.cells.any() and not sums.counts.any()


@pytest.mark.parametrize("n_threads", [2, 3, 7])
@each_kind
def test_any_threads(kind, n_threads):
    X, weights, labels = rows(kind, n=60_000)
    layout = Layout(X, weights, n_threads)
    assert np.array_equal(layout.magic, Layout(X, weights, 1).magic)
    one = sums_of(layout, X, weights, labels)
    assert state(sums_of(layout, X, weights, labels, n_threads)) == state(one)


def test_bins_hold_as_many_rows_as_there_are():
    """However many, all at the unit: every bin stays below 2^53 of its grains, moves included."""
    X = np.ones((1, 1)) * np.nextafter(2.0, 0)
    for n in (1, 2, 3, 1000, 2**20 + 1, 2**33):
        width = max(1, min(40, 52 - (n - 1).bit_length()))
        assert 2 * n * 2**width <= 2**53
    layout = Layout(np.repeat(X, 4097, axis=0), None, 1)
    assert 2 * 4097 * 2**layout.width <= 2**53


def test_sums_of_one_layout_only():
    X, _, labels = rows("plain")
    a, b = Sums(Layout(X, None, 1), K), Sums(Layout(2 * X, None, 1), K)
    with pytest.raises(ValueError, match="one layout"):
        a.merge(b)
    with pytest.raises(ValueError, match="label must be"):
        a.add(X, labels + K, None)
    with pytest.raises(ValueError, match="must match"):
        a.add(X, labels, np.ones(len(X)))


@seeds(20)
def test_total_is_rounded_once(seed):
    """The same as math.fsum, whatever the exponents and signs, and at ties."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 5000))
    values = rng.normal(size=n) * 2.0 ** rng.integers(-40 * seed, 40 * seed + 1, size=n)
    assert exact_total(values) == math.fsum(values)
    assert exact_total(-np.abs(values)) == -math.fsum(np.abs(values))
    assert exact_total(np.r_[values, -values[::-1]]) == 0.0
    ties = np.array([1.0, 2.0**-53, seed * 2.0**-106, 2.0 ** (seed - 120)])
    for tie in (ties, -ties, ties[:2], ties + 2.0**-52 * (ties == 1)):
        assert exact_total(tie) == math.fsum(tie)
    assert exact_total(1e-310 * rng.random(50)) > 0.0


FITS = {
    "plain": {},
    "weights": {"weights": True},
    "float32": {"dtype": np.float32},
    "far": {"offset": 1e5},
    "delayed": {"algorithm": "delayed"},
}


@pytest.mark.filterwarnings("ignore:one cluster is left")
@pytest.mark.parametrize("name", FITS)
def test_a_fit_does_not_know_the_order_of_the_rows(name):
    """From given centers, where none opens: same labels, and the same bits in all sums."""
    options = dict(FITS[name])
    rng = np.random.default_rng(3)
    X = blobs(rng, 5000, 3, 12, spread=0.4) + options.pop("offset", 0)
    X = X.astype(options.pop("dtype", float))
    weights = rng.gamma(1.0, size=len(X)) if options.pop("weights", False) else None
    init = X[:12].astype(float)
    model = DPMeans(lam=1e30, init=init, **options)
    assert fit_of_any_order(model, X, weights, rng).n_iter_ > 4


@pytest.mark.parametrize("algorithm", ["serial", "delayed", "collapsed"])
def test_means_kept_up_are_means_from_scratch(algorithm):
    """After many sweeps, centers and objective are those that the labels alone give."""
    rng = np.random.default_rng(4)
    X, weights = rng.random((3000, 2)) + np.array([0, 1e4]), rng.gamma(1.0, size=3000)
    model = DPMeans(lam=0.03, algorithm=algorithm).fit(X, sample_weight=weights)
    assert model.n_iter_ > 8
    layout = Layout(X, weights, 1)
    sums = Sums(layout, model.n_clusters_)
    sums.add(X, model.labels_, weights)
    assert model.cluster_centers_.tobytes() == sums.means.tobytes()
    own = twins.exact.sum_of_squares(X, weights, model.labels_, model.cluster_centers_)
    assert model.inertia_ == own
