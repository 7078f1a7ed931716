"""All boundaries of a clustering: equal to one at a time, contacts by hand, parts of the rows."""

import warnings

import numpy as np
import pytest
import twins.boundary
from helpers import seeds
from scipy.sparse import csr_array
from sklearn.cluster import KMeans

from smallvar._selection import boundaries
from smallvar._selection.boundaries import (
    MANY_ON_A_LINE,
    ClusterRows,
    boundary_between,
    find_boundaries,
    touching,
)
from smallvar._selection.boundary import N_BINS, boundary_along


def problem(seed, n=None, d=None, k=None):
    """Rows of three groups, of one, on a grid, or with a constant column; labels and weights."""
    rng = np.random.default_rng([seed, 7])
    n, d, k = n or rng.choice([60, 300, 1200]), d or rng.choice([1, 2, 5, 20]), k or seed % 7 + 2
    X = rng.normal(size=(n, d))
    if seed % 3:
        X += 4.0 * rng.normal(size=(3, d))[rng.integers(0, 3, n)]
    if seed % 4 == 1:
        X = np.round(2.0 * X)
    if seed % 5 == 1 and d > 1:
        X[:, 0] = 3.0
    labels = (
        rng.integers(0, k, n)
        if seed % 7 == 6
        else KMeans(k, n_init=1, random_state=0).fit_predict(X)
    )
    return X, rng.integers(0, 3, n).astype(float) if seed % 2 else None, labels, k


def means_of(X, weight, labels, k):
    """Means of clusters; far away for those without rows."""
    w = np.ones(len(X)) if weight is None else weight
    means = np.full((k, X.shape[1]), 1e100)
    for c in range(k):
        if w[labels == c].any():
            means[c] = np.average(X[labels == c], axis=0, weights=w[labels == c])
    return means


def quiet(*arguments, **options):
    """Boundaries, without any warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return find_boundaries(*arguments, **options)


@seeds(40)
def test_equal_to_one_at_a_time(seed):
    X, weight, labels, k = problem(seed)
    found, means = quiet(X, weight, labels, k), means_of(X, weight, labels, k)
    for i, (a, b) in enumerate(found.pairs):
        rows = ClusterRows(X, weight, labels, k)
        both = np.concatenate([rows.rows_of(a), rows.rows_of(b)])
        facing = twins.boundary.faces(X, means, labels, a, b)[both]
        places, w, _ = rows.places(a, b)
        single = boundary_along(places[facing], w[facing])
        assert found.known[i] == (len(single.edges) > 0)
        assert found.evidence[i] == pytest.approx(single.evidence, abs=1e-9)
        if found.known[i]:
            np.testing.assert_allclose(found.edges[i], single.edges, atol=1e-3)
            np.testing.assert_allclose(found.counts[i], single.counts, atol=1e-3)
    every = weight if weight is not None else np.ones(len(X))
    sizes = np.bincount(labels, every, k)
    np.testing.assert_allclose(found.weight, sizes[found.pairs].sum(axis=1))


@seeds(8)
def test_equals_twin(seed):
    X, weight, labels, k = problem(3 * seed + 2, n=400, d=1 + seed % 3, k=3 + seed % 3)
    times = np.ones(len(X), dtype=int) if weight is None else weight.astype(int)
    found, means = quiet(X, weight, labels, k), means_of(X, weight, labels, k)
    X, labels = X.repeat(times, axis=0), labels.repeat(times)
    for (a, b), evidence in zip(found.pairs[:2], found.evidence[:2], strict=True):
        facing = twins.boundary.faces(X, means, labels, a, b)
        expected = twins.boundary.evidence(X, labels, a, b, facing)
        assert evidence == pytest.approx(expected, abs=1e-6)


@seeds(20)
def test_rows_that_face_each_other(seed):
    X, weight, labels, k = problem(seed, k=3 + seed % 6)
    rows, means = ClusterRows(X, weight, labels, k), means_of(X, weight, labels, k)
    rows.pairs = touching(rows)[0]
    for a, b in rows.pairs:
        expected = twins.boundary.faces(X, means, labels, a, b)
        for own, other in ((a, b), (b, a)):
            some = rows.rows_of(own)
            np.testing.assert_array_equal(rows.facing(own, other), expected[some])
    assert k == 2 or X.shape[1] == 1 or not expected.all()


@pytest.mark.parametrize("kind", ["normal", "exponential", "random"])
@pytest.mark.parametrize("d", [2, 5, 11])
def test_no_gaps_within_one_cloud(kind, d):
    """In 8 pieces of a log-concave cloud; if rows that do not face each other count, there are."""
    largest, of_all_rows, every, valleys = [], [], [], []
    for seed in range(9):
        X = getattr(np.random.default_rng([seed, d, 8]), kind)(size=(1000, d))
        labels = KMeans(8, n_init=1, random_state=0).fit_predict(X)
        found = quiet(X, None, labels, 8)
        largest.append(found.evidence.max())
        every.extend(found.evidence)
        valleys.extend(found.valley)
        pairs = (boundary_between(X, None, labels, *pair) for pair in found.pairs)
        of_all_rows.append(max(pair.evidence for pair in pairs))
    assert np.median(largest) < 4.0 < np.median(of_all_rows)
    # a steep side is at times two bells rather than a body, but with hardly a valley
    gaps = np.array(every) >= 5.0
    assert np.mean(gaps) < 0.02 and (np.array(valleys)[gaps] < 0.2).all()


@seeds(10)
def test_contacts(seed):
    """By all distances to means."""
    X, weight, labels, k = problem(seed)
    w = np.ones(len(X)) if weight is None else weight
    means = np.array([np.average(X[labels == c], axis=0, weights=w[labels == c]) for c in range(k)])
    squares = np.square(X[:, None] - means).sum(axis=-1)
    squares[np.arange(len(X)), labels] = np.inf
    expected = np.zeros((k, k))
    np.add.at(expected, (labels, squares.argmin(axis=1)), w)
    expected = np.triu(expected + expected.T)
    found = np.zeros((k, k))
    pairs, contacts = touching(ClusterRows(X, weight, labels, k))
    found[tuple(pairs.T)] = contacts
    np.testing.assert_array_equal(found, np.where(expected >= 2, expected, 0))
    assert (np.diff(contacts) <= 0).all()


@pytest.mark.parametrize("d", [1, 2, 8])
@pytest.mark.parametrize("gap", [0.0, 2.0, 3.0, 5.0])
@seeds(2)
def test_cells(gap, d, seed):
    """Many rows in fine cells, and none left out of the moments, change evidence by little."""
    rng = np.random.default_rng([seed, d])
    X = rng.normal(size=(MANY_ON_A_LINE + 5000, d))
    X[: len(X) // 3, 0] += gap
    labels = (X[:, 0] < 0.5 * gap).astype(int)
    weight = None if seed else rng.integers(1, 3, len(X)).astype(float)
    cells = quiet(X, weight, labels, 2)
    exact = quiet(X, weight, labels, 2, cells=False)
    assert (cells.counts != exact.counts).any()
    assert cells.counts.sum() == pytest.approx(exact.counts.sum(), abs=1e-6)
    assert cells.evidence == pytest.approx(exact.evidence, rel=0.01, abs=0.1)
    np.testing.assert_allclose(cells.edges, exact.edges, atol=1e-3)


@seeds(6)
def test_invariances(seed):
    """Units, offsets, rotations, order of rows, weight 2 as two rows, the kind of array."""
    X, weight, labels, k = problem(seed, n=300)
    rng = np.random.default_rng(seed)
    found = quiet(X, weight, labels, k)
    rotation = np.linalg.qr(rng.normal(size=(X.shape[1], X.shape[1])))[0]
    order = rng.permutation(300)
    shuffled = None if weight is None else weight[order]
    times = np.ones(300, dtype=int) if weight is None else weight.astype(int)
    for other in (
        quiet(1e9 * X, weight, labels, k),
        quiet(1e-170 * X, weight, labels, k),
        quiet(X + 1e3, weight, labels, k),
        quiet(-X, weight, labels, k),
        quiet(X @ rotation, weight, labels, k),
        quiet(X[order], shuffled, labels[order], k),
        quiet(X.repeat(times, axis=0), None, labels.repeat(times), k),
        quiet(np.asfortranarray(X), weight, labels, k),
        quiet(csr_array(X), weight, labels, k),
        quiet(X, weight, labels.astype(np.int32), k),
    ):
        np.testing.assert_array_equal(other.pairs, found.pairs)
        np.testing.assert_allclose(other.evidence, found.evidence, atol=1e-6)


@pytest.mark.parametrize("cells", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_same_bits_for_any_threads(cells, weighted):
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(150_000, 8)), rng.integers(0, 5, 150_000)
    X[:, :5] += 3.0 * np.eye(5)[labels]
    weight = rng.random(len(X)) if weighted else None
    one, two, three = (find_boundaries(X, weight, labels, 5, t, cells) for t in (1, 2, 3))
    assert len(one.pairs) == 10
    for name, value in vars(one).items():
        np.testing.assert_array_equal(getattr(two, name), value)
        np.testing.assert_array_equal(getattr(three, name), value)


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_that_are_not_kept(sparse, monkeypatch):
    """Rows read again at each stage, in blocks of a few, and not in cells: nothing changes."""
    X, weight, labels, k = problem(3, n=300, d=5)
    X[np.abs(X) < 0.5] = 0.0
    rows = csr_array(X) if sparse else X
    for cells in (False, True):
        found = quiet(X, weight, labels, k, cells=cells)
        with monkeypatch.context() as patch:
            patch.setattr(boundaries, "MOST_KEPT", 0)
            patch.setattr(boundaries, "MOST_AT_ONCE", 100)
            patch.setattr(boundaries, "MOST_LINES", 3)
            other = quiet(rows, weight, labels, k, cells=cells)
        np.testing.assert_allclose(other.evidence, found.evidence, atol=1e-6)
    monkeypatch.setattr(boundaries, "MOST_MOMENTS", 0)
    other = quiet(rows, weight, labels, k)
    np.testing.assert_allclose(other.evidence, quiet(X, weight, labels, k).evidence, atol=1e-6)


def test_rows_that_are_left_out():
    """Labels from k on or below 0, rows of weight 0, empty clusters."""
    X, _, labels, k = problem(2, n=300, d=2, k=4)
    found = quiet(X, None, labels, k)
    far = np.vstack([X, X + 5.0, X - 3.0])
    others = np.concatenate([labels, np.full(300, -1), np.full(300, k)])
    np.testing.assert_allclose(quiet(far, None, others, k).evidence, found.evidence, atol=1e-9)
    weight = np.repeat([1.0, 0.0], [300, 600])
    others[300:] = 0
    np.testing.assert_allclose(quiet(far, weight, others, k).evidence, found.evidence, atol=1e-9)
    with_empty = quiet(X, None, 2 * labels + 1, 2 * k + 1)
    np.testing.assert_array_equal(with_empty.pairs, 2 * found.pairs + 1)
    np.testing.assert_allclose(with_empty.evidence, found.evidence, atol=1e-9)


def test_nothing_can_be_said():
    X = np.random.default_rng(0).normal(size=(8, 3))
    for rows, weight, labels, k in (
        (X, None, np.arange(8) % 8, 8),
        (X, None, np.zeros(8, dtype=int), 1),
        (X, None, np.zeros(8, dtype=int), 5),
        (X, np.zeros(8), np.arange(8) % 2, 2),
        (X, None, np.full(8, -1), 2),
        (np.ones((40, 3)), None, np.arange(40) % 2, 2),
        (np.arange(40.0)[:, None] % 2, None, np.arange(40) % 2, 2),
        (X[:1], None, np.zeros(1, dtype=int), 2),
    ):
        for cells in (None, True):
            found = quiet(rows, weight, labels, k, cells=cells)
            assert found.pairs.shape == (len(found.evidence), 2)
            assert not found.known.any() or len(rows) == 8
            assert (found.evidence[~found.known] == 0.0).all()
            assert found.counts.shape == (len(found.evidence), N_BINS)
    assert len(quiet(np.ones((40, 3)), None, np.arange(40) % 2, 2).pairs) == 1


@pytest.mark.parametrize("weighted", [False, True])
def test_boundaries_that_are_no_gaps_are_counted(weighted, monkeypatch):
    rng = np.random.default_rng(0)
    # two far groups, of which the second is cut in two
    X = rng.uniform(-1.0, 1.0, size=(3000, 2)) + np.repeat(
        [[0.0, 0.0], [9.0, 0.0]], [1000, 2000], axis=0
    )
    labels = np.where(X[:, 0] < 5.0, 0, 1 + (X[:, 1] > 0.0))
    weight = (rng.random(3000) < 0.7).astype(float) if weighted else None
    n = len(find_boundaries(X, weight, labels, 3).pairs)
    assert n == 3
    assert boundaries.count_without_gap(X, weight, labels, 3) == (1, n)
    assert boundaries.count_without_gap(csr_array(X), weight, labels, 3) == (1, n)
    assert boundaries.count_without_gap(X, weight, np.zeros(3000, dtype=int), 1) is None
    sizes = []
    find = find_boundaries

    def recorded(X, *arguments):
        sizes.append(len(X))
        return find(X, *arguments)

    monkeypatch.setattr(boundaries, "find_boundaries", recorded)
    monkeypatch.setattr(boundaries, "COUNTED_ROWS", 600)
    assert boundaries.count_without_gap(X, weight, labels, 3) == (1, n)
    assert sizes == [600]
    monkeypatch.setattr(boundaries, "COUNTED_WORK", 3 * 4 * 100)  # rows too few to tell
    assert boundaries.count_without_gap(X, weight, labels, 3) is None
    monkeypatch.setattr(boundaries, "MOST_COUNTED", 2)
    assert boundaries.count_without_gap(X, weight, labels, 3) is None
