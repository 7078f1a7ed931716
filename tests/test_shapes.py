"""ShapeMeans: equal to its twin, invariances, weights, exact numbers, odd and few rows."""

import pickle
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import twins.pieces
from helpers import assert_refuses, seeds
from scipy.sparse import csr_array
from sklearn.datasets import load_wine, make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import scale

from smallvar import DPMeans, ShapeMeans, boundary_evidence
from smallvar._centers import shapes
from smallvar._selection import pieces
from smallvar._selection.boundaries import find_boundaries
from smallvar._selection.pieces import choose, find_pieces, merge_order, rand_index

MOONS, MOON = make_moons(600, noise=0.07, random_state=1)


def small(seed):
    """60 to 400 rows of a kind by the seed, and their clusters."""
    rng = np.random.default_rng([seed, 46])
    n = int(rng.integers(60, 401 - 2 * (seed % 100)))
    kind = ("blobs", "moons", "circles", "bars", "normal", "uniform")[seed % 6]
    if kind == "blobs":
        return make_blobs(n, 2, centers=int(rng.integers(2, 6)), random_state=seed)
    if kind == "moons":
        return make_moons(n, noise=0.08, random_state=seed)
    if kind == "circles":
        return make_circles(n, noise=0.05, factor=0.4, random_state=seed)
    if kind == "bars":
        truth = rng.integers(0, 3, n)
        return np.column_stack([6.0 * rng.random(n), truth + 0.15 * rng.normal(size=n)]), truth
    draw = rng.normal if kind == "normal" else rng.random
    return draw(size=(n, 2 + seed % 3)), np.zeros(n, dtype=int)


def evidence_of(boundaries):
    """The evidence of a Boundaries by pair."""
    pairs = map(tuple, boundaries.pairs.tolist())
    return dict(zip(pairs, boundaries.evidence.tolist(), strict=True))


@seeds(100)
def test_equals_twin(seed, monkeypatch):
    """The same labels from the same pieces."""
    X, _ = small(seed)
    number = int(seed % 5 + 1) if seed % 4 == 3 else None
    asked = []

    def spied(found, weight, compact, confidence, number=None, least=0.0):
        asked.append((found, compact))
        return choose(found, weight, compact, confidence, number, least)

    monkeypatch.setattr(shapes, "choose", spied)
    model = ShapeMeans(n_clusters=number, random_state=0).fit(X)
    if not asked:  # the compact clusters
        assert np.array_equal(model.labels_, model.pieces_)
        return
    (found, compact) = asked[0]
    plain = [(p.labels, evidence_of(p.boundaries)) for p in found]
    expected = twins.pieces.choose(plain, compact, number)
    assert adjusted_rand_score(model.labels_, expected) == 1.0


@seeds(40)
def test_mergers_of_random_evidence(seed):
    """With ties, whole numbers, and clusters that do not touch."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 12))
    pairs = np.array(np.triu_indices(k, 1)).T
    pairs = pairs[rng.random(len(pairs)) < 0.5]
    draw = rng.integers(-9, 10, len(pairs)) if seed % 2 else 9.0 * rng.normal(size=len(pairs))
    found = SimpleNamespace(pairs=pairs, evidence=np.asarray(draw, dtype=float))
    mergers, evidence = merge_order(pairs, found.evidence, k)
    assert mergers.shape == (k - 1, 2) and evidence.shape == (k - 1,)
    there = pieces.Clustering(np.zeros((k, 1)), None, found, mergers, evidence)
    known = evidence_of(found)
    np.testing.assert_array_equal(there.clusters(), twins.pieces.merged(known, k))
    for number in range(1, k + 1):
        expected = twins.pieces.merged(known, k, number)
        np.testing.assert_array_equal(there.merged_to(np.arange(k), number), expected)


@seeds(20)
def test_support_of_weighted_rows(seed):
    """As of repeated rows."""
    X, truth = small(seed)
    rng = np.random.default_rng(seed)
    k = 8
    centers = X[rng.choice(len(X), k, replace=False)]
    labels = np.square(X[:, None] - centers).sum(axis=2).argmin(axis=1).astype(np.int32)
    weight = rng.integers(1, 3, len(X)).astype(float)
    found = find_pieces(X, weight, labels, centers, 1)
    times = weight.astype(int)
    expected = twins.pieces.support(
        truth.repeat(times), labels.repeat(times), evidence_of(found.boundaries)
    )
    np.testing.assert_allclose(found.support(truth, weight), expected, rtol=1e-12)
    evidence = find_boundaries(X.repeat(times, axis=0), None, labels.repeat(times), k).evidence
    np.testing.assert_allclose(evidence, found.boundaries.evidence, atol=1e-6)


def test_two_moons():
    model = ShapeMeans(random_state=0).fit(MOONS)
    assert model.n_clusters_ == 2 and adjusted_rand_score(model.labels_, MOON) > 0.98
    assert len(model.piece_centers_) == len(model.piece_clusters_) > 2
    np.testing.assert_array_equal(model.labels_, model.piece_clusters_[model.pieces_])
    np.testing.assert_array_equal(model.predict(MOONS), model.labels_)
    assert len(model.merge_evidence_) == len(model.piece_clusters_) - 1
    table = boundary_evidence(MOONS, model.pieces_)
    np.testing.assert_allclose(model.boundaries_.evidence, table.evidence, atol=1e-9)
    first = [np.flatnonzero(model.piece_clusters_ == c)[0] for c in range(2)]
    assert first == sorted(first)
    distances = model.transform(MOONS)
    assert distances.shape == (600, 2)
    np.testing.assert_array_equal(distances.argmin(axis=1), model.labels_)
    each = np.linalg.norm(MOONS[:, None] - model.piece_centers_, axis=2)
    for c in range(2):
        nearest = each[:, model.piece_clusters_ == c].min(axis=1)
        np.testing.assert_allclose(distances[:, c], nearest, atol=1e-9)
    assert model.get_feature_names_out().tolist() == ["shapemeans0", "shapemeans1"]


@pytest.mark.parametrize(
    "other",
    [
        MOONS + 1000.0,
        MOONS * 1024.0,
        MOONS * 2.0**-30,
        1e139 * MOONS,
        1e-139 * MOONS,
        MOONS.astype(np.float32).astype(float).astype(np.float32),
        csr_array(MOONS),
        MOONS.tolist(),
        np.hstack([MOONS, np.full((600, 2), 7.0)]),
    ],
    ids=["moved", "large", "small", "1e139", "1e-139", "float32", "sparse", "list", "constant"],
)
@pytest.mark.parametrize("number", [None, 5])
def test_the_same_labels(other, number):
    """Of numbers that are the same but for a unit, an offset, or how they are held."""
    model = ShapeMeans(n_clusters=number, random_state=0)
    expected = model.fit(MOONS).labels_
    assert model.metric_ is None
    model.fit(other)
    np.testing.assert_array_equal(model.labels_, expected)
    np.testing.assert_array_equal(model.predict(other), expected)


@seeds(6)
def test_weights_are_repeats(seed):
    """Also zeros; and times a constant they change nothing."""
    X, _ = small(seed)
    weight = np.random.default_rng(seed).integers(0, 3, len(X)).astype(float)
    model = ShapeMeans(random_state=0).fit(X, sample_weight=weight)
    times = weight.astype(int)
    repeated = ShapeMeans(random_state=0).fit(X.repeat(times, axis=0))
    np.testing.assert_array_equal(model.labels_.repeat(times), repeated.labels_)
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    for c in (1e-9, 0.1, 3.0, 1e6):
        other = ShapeMeans(random_state=0).fit(X, sample_weight=c * weight)
        np.testing.assert_array_equal(other.labels_, model.labels_)


@seeds(6)
def test_a_light_row_changes_little(seed):
    """Rows count by their mean weight: beside a light one, others do not count a thousandfold."""
    X = np.random.default_rng(seed).normal(size=(600, 2))
    for light in (0.1, 1e-5):
        weight = np.ones(600)
        weight[0] = light
        assert ShapeMeans(random_state=0).fit(X, sample_weight=weight).n_clusters_ <= 4


def test_exact_numbers():
    """Any up to the distinct rows, one more is refused; rows of weight 0 do not count."""
    X = np.vstack([MOONS[:90], MOONS[:10]])
    for k in (*range(1, 13), 40, 89, 90):
        model = ShapeMeans(n_clusters=k, random_state=0).fit(X)
        assert model.n_clusters_ == k
        np.testing.assert_array_equal(np.unique(model.labels_), np.arange(k))
    model = ShapeMeans(n_clusters=91, random_state=0)
    said = "n_clusters must be <= 90, the number of distinct rows"
    assert_refuses(model, lambda m: m.fit(X), ValueError, said, "got n_clusters=91")
    weight = np.repeat([1.0, 0.0, 1.0], [50, 40, 10])
    assert_refuses(model, lambda m: m.fit(X, sample_weight=weight), ValueError, "<= 50", "=91")
    for number, error in (
        (0, ValueError),
        (2.5, TypeError),
        ("three", TypeError),
        (-1, ValueError),
    ):
        assert_refuses(
            ShapeMeans(n_clusters=number), lambda m: m.fit(X), error, "n_clusters must be"
        )


@pytest.mark.parametrize("k", [2, 50, 300, 2500])
def test_exact_numbers_of_many_rows(k, monkeypatch):
    """Also if a sample has rows of fewer pieces."""
    monkeypatch.setattr(shapes, "ROWS_OF_PIECES", 500)
    X = np.random.default_rng(0).normal(size=(3000, 2))
    model = ShapeMeans(n_clusters=k, random_state=0).fit(X)
    np.testing.assert_array_equal(np.unique(model.labels_), np.arange(k))


def test_clear_clusters_of_few_rows(monkeypatch):
    """They are not lost with the rows that a sample leaves out."""
    monkeypatch.setattr(shapes, "ROWS_OF_PIECES", 500)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 2))
    X[3000:] += 30.0
    X = np.vstack([X, 0.3 * rng.normal(size=(6, 2)) + [90.0, -50.0]])
    plain, model = (kind(random_state=0).fit(X) for kind in (DPMeans, ShapeMeans))
    assert plain.path_.confidence > 0.8 and plain.n_clusters_ == 3
    assert adjusted_rand_score(plain.labels_, model.labels_) == 1.0


def test_numbers_of_pieces():
    """A given number is among them, however many compact clusters there are."""
    for k in (1, 7, 40, 41, 50, 200):
        for number in (1, 2, 20, 60, 300):
            assert number in pieces.numbers_of_pieces(k, 100, 400, number)
    assert pieces.numbers_of_pieces(1, 1, 1) == []
    assert max(pieces.numbers_of_pieces(3, 1000.0, 20)) == 20
    assert max(pieces.numbers_of_pieces(3, 100.0, 80)) == 12  # eight rows each
    assert max(pieces.numbers_of_pieces(3, 95.0, 80)) == 8


@seeds(20)
def test_agreement_of_weighted_rows(seed):
    """The adjusted Rand index of repeated rows; finite for any weights."""
    rng = np.random.default_rng(seed)
    one, other = rng.integers(0, 1 + seed % 4, 40), rng.integers(0, 3, 40)
    weight = rng.integers(1, 4, 40)
    expected = adjusted_rand_score(one.repeat(weight), other.repeat(weight))
    got = rand_index(one, other, weight.astype(float))
    assert got == pytest.approx(expected, abs=1e-12)
    assert abs(rand_index(one, other, 10.0 ** rng.integers(-200, 1, 40))) <= 1.0


@seeds(8)
def test_weights_of_any_size(seed):
    X = np.random.default_rng(seed).normal(size=(2 + 3 * seed, 1))
    weight = 10.0 ** np.random.default_rng(seed).integers(-120, 90, len(X))
    assert ShapeMeans(random_state=0).fit(X, sample_weight=weight).n_clusters_ >= 1
    X, weight = (
        np.arange(2.0)[:, None],
        np.array([1e90, 1e34]),
    )
    assert ShapeMeans(random_state=0).fit(X, sample_weight=weight).n_clusters_ >= 1


ODD = {
    "one row": lambda rng: np.ones((1, 3)),
    "two equal rows": lambda rng: np.ones((2, 3)),
    "equal rows": lambda rng: np.full((50, 3), 0.1),
    "two rows": lambda rng: rng.normal(size=(2, 2)),
    "three rows": lambda rng: rng.normal(size=(3, 2)),
    "nine rows": lambda rng: rng.normal(size=(9, 2)),
    "more columns than rows": lambda rng: rng.normal(size=(30, 500)),
    "two values": lambda rng: rng.integers(0, 2, size=(200, 1)).astype(float),
    "three values": lambda rng: rng.integers(0, 3, size=(200, 2)).astype(float),
    "duplicates": lambda rng: rng.normal(size=(5, 2)).repeat(40, axis=0),
    "differ by rounding": lambda rng: 1.0 + 3e-16 * rng.normal(size=(60, 2)),
    "differ by some roundings": lambda rng: 1.0 + 3e-15 * rng.normal(size=(60, 1)),
    "far apart": lambda rng: rng.normal(size=(50, 2)) + 1e12 * rng.integers(0, 2, size=(50, 1)),
}


@pytest.mark.parametrize("name", ODD)
@seeds(3)
def test_odd_rows(name, seed):
    X = ODD[name](np.random.default_rng(seed))
    for options in ({}, {"n_clusters": 1}, {"noise": True}):
        model = ShapeMeans(random_state=0, **options).fit(X)
        used = model.labels_[model.labels_ >= 0]
        np.testing.assert_array_equal(np.unique(used), np.arange(model.n_clusters_))
        assert model.labels_.shape == (len(X),) and model.labels_.dtype == np.int32
        np.testing.assert_array_equal(model.predict(X), model.labels_)
        np.testing.assert_array_equal(
            ShapeMeans(random_state=0, **options).fit_predict(X), model.labels_
        )
    if name in ("one row", "two equal rows", "equal rows"):
        assert model.n_clusters_ == 1


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([[1.0, np.nan], [2.0, 3.0]], "NaN"),
        ([[1.0, np.inf], [2.0, 3.0]], "infinity"),
        ([["a", "b"], ["c", "d"]], "X must be numbers, got column 0"),
        (["a text", "another text"], "X must be numbers, got column 0 .* TfidfVectorizer"),
        (np.zeros((0, 3)), "0 sample"),
        (np.ones(5), "2D array"),
        (1e141 * MOONS, "rescale the data"),
    ],
)
def test_bad_rows(X, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ShapeMeans().fit(X)


def test_noise():
    """Rows set aside have no cluster and no piece, and new rows like them neither."""
    rng = np.random.default_rng(0)
    X = np.vstack([MOONS, rng.uniform(-30.0, 30.0, size=(30, 2))])
    model = ShapeMeans(noise=True, random_state=0).fit(X)
    assert model.n_clusters_ == 2
    assert adjusted_rand_score(model.labels_[:600], MOON) > 0.95
    assert (model.labels_[600:] == -1).sum() >= 25
    np.testing.assert_array_equal(model.labels_ < 0, model.pieces_ < 0)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    other = ShapeMeans(noise=True, random_state=0, n_threads=2).fit(X)
    other.set_params(n_threads=1)
    assert pickle.dumps(other._noise) == pickle.dumps(model._noise)
    np.testing.assert_array_equal(other.predict(X), model.labels_)
    assert_refuses(model, lambda m: m.fit(csr_array(X)), ValueError, "noise must be False")
    assert_refuses(ShapeMeans(noise=1), lambda m: m.fit(X), TypeError, "noise must be")


def test_threads_and_repeated_calls():
    X = np.random.default_rng(0).normal(size=(30_000, 3))
    X[:15_000, 0] += 6.0
    models = [ShapeMeans(random_state=0, n_threads=n).fit(X) for n in (1, 2, 2)]
    for model in models[1:]:
        for name in ("labels_", "pieces_", "piece_centers_", "merge_evidence_"):
            np.testing.assert_array_equal(getattr(model, name), getattr(models[0], name))
        np.testing.assert_array_equal(model.boundaries_.evidence, models[0].boundaries_.evidence)


def test_sure_compact_clusters_are_those_of_dpmeans():
    """Where the number is clear they are taken as they are: wine stays three."""
    X = scale(load_wine().data)
    assert ShapeMeans(random_state=0).fit(X).n_clusters_ == 3
    X, _ = make_blobs(500, centers=4, random_state=3)
    plain, model = (kind(random_state=0).fit(X) for kind in (DPMeans, ShapeMeans))
    assert plain.path_.confidence > 0.8
    assert adjusted_rand_score(plain.labels_, model.labels_) == 1.0


@pytest.mark.parametrize("form", ["normal", "uniform", "exponential"])
def test_one_cloud_is_mostly_one(form):
    draw = partial(getattr(np.random.default_rng(5), form), size=(1000, 2))
    found = [ShapeMeans(random_state=0).fit(draw()).n_clusters_ for _ in range(8)]
    assert found.count(1) >= 6


@seeds(3)
def test_rows_of_which_nothing_can_be_said(seed):
    """Five different rows, 40 times each: their boundaries are unknown, and they stay apart."""
    rows = 5.0 * np.random.default_rng(seed).normal(size=(5, 2))
    model = ShapeMeans(random_state=0).fit(rows.repeat(40, axis=0))
    assert np.isnan(model.boundaries_.evidence).all()
    assert len(np.unique(model.labels_[::40])) == model.n_clusters_ > 1
    np.testing.assert_array_equal(model.labels_, model.labels_[::40].repeat(40))
