"""Nearest centers by affine scores: the labels of exact divergences, with bounds or without."""

import numpy as np
import pytest
import twins.bregman
from helpers import fit
from smallvar._sweeps.affine import AffineSweep
from smallvar._sweeps.divergences import divergences, summands, within_members

from smallvar import BregmanDPMeans
from smallvar._centers.divergence import DivergenceSweep, Reference, SumsFrame
from smallvar._centers.divergence_rules import DIVERGENCES

NAMES = ("kl", "itakura_saito", "logistic")
each_divergence = pytest.mark.parametrize("name", NAMES)


def rows(rng, name, n, d, k):
    """Rows of k clusters, for "logistic" bits: some columns of a cluster are all 0, or all 1."""
    z = rng.integers(k, size=n)
    if name == "kl":
        return rng.poisson(rng.gamma(1.0, 20.0, size=(k, d))[z]).astype(float)
    if name == "itakura_saito":
        return rng.gamma(3.0, rng.gamma(1.0, 3.0, size=(k, d))[z]) + 1e-8
    return (rng.random((n, d)) < rng.beta(0.2, 0.2, size=(k, d))[z]).astype(float)


def sweep_over(name, X, weight=None, order=None, n_threads=1):
    rule = DIVERGENCES[name]
    frame = SumsFrame(X, weight, 1)
    visited = weight if weight is None or order is None else weight[order]
    return DivergenceSweep(
        rule, X, visited, order, Reference(rule, X, frame.mean, frame), n_threads
    )


@pytest.mark.parametrize("kind", ["float64 C", "float64 F", "float32 C", "order and weights"])
@each_divergence
def test_labels_and_bounds_after_every_move(name, kind):
    """Labels are the exact ones, bounds hold, and some rows are not compared."""
    rng = np.random.default_rng(len(name))
    X, weight, order = rows(rng, name, 6000, 8, 7), None, None
    if kind != "order and weights":
        X = np.asarray(X, dtype=kind[:7], order=kind[8:])
    else:
        weight, order = rng.gamma(1.0, size=6000), rng.permutation(6000)[:5000]
        weight[np.setdiff1d(np.arange(6000), order)] = 0.0
    sweep = sweep_over(name, X, weight, order)
    visited = np.asarray(X, dtype=float)[slice(None) if order is None else order]
    seeds = visited[rng.choice(len(visited), 7, replace=False)]
    sweep.start((seeds + 3.0 * visited.mean(axis=0)) / 4.0)
    compared = []
    for _ in range(30):
        sweep.assign()
        D = sweep.rule.between(visited[:, None], sweep.centers)
        np.testing.assert_array_equal(sweep.labels, D.argmin(axis=1))
        at = np.arange(len(D))
        own, upper = D[at, sweep.labels], sweep.affine.upper_bounds
        D[at, sweep.labels] = np.inf
        assert np.all(upper >= own * (1.0 - 1e-9))
        assert np.all(sweep.affine.lower_bounds <= D.min(axis=1) * (1.0 + 1e-9))
        sweep.move_centers()
        compared.append(np.mean(upper <= own * (1.0 + 1e-6) + 1e-9))
    assert compared[0] == 1.0 and min(compared) < 0.9  # the others were not compared


@pytest.mark.parametrize("distance", [1e-4, 1e-6, 1e-8, 1e-10])
@each_divergence
def test_centers_near_each_other(name, distance):
    """Apart by a small share of their size: labels are exact, mostly without exact divergences."""
    rng = np.random.default_rng(0)
    mean = rng.uniform(0.2, 0.8, size=8)
    X = mean * (1.0 + distance * rng.normal(size=(5000, 8)))
    sweep = sweep_over(name, X)
    sweep.start(mean * (1.0 + distance * rng.normal(size=(6, 8))))
    sweep.assign()
    exact = sweep.rule.between(X[:, None], sweep.centers).argmin(axis=1)
    assert len(np.unique(exact)) == 6
    np.testing.assert_array_equal(sweep.labels, exact)
    assert np.mean(sweep.affine.lower_bounds == 0.0) < 0.2


@each_divergence
def test_exact_divergences_are_those_of_rows_at_a_tie(name):
    """Two equal centers: all of their rows are compared exactly, and have no lower bound."""
    rng = np.random.default_rng(1)
    X = rows(rng, name, 2000, 3, 3)
    sweep = sweep_over(name, X)
    centers = 0.5 * sweep.reference.m0 + 0.5 * X[[3, 40]]
    sweep.start(centers[[0, 1, 0]])
    sweep.assign()
    D = sweep.rule.between(X[:, None], sweep.centers)
    np.testing.assert_array_equal(sweep.labels, D.argmin(axis=1))
    exact = sweep.affine.lower_bounds == 0.0
    assert 0 < exact.sum() < 2000
    np.testing.assert_array_equal(exact, D[:, 0] <= D[:, 1])
    at = np.arange(len(D))
    np.testing.assert_array_equal(sweep.assigned_distances(), D[at, sweep.labels])
    assert sweep.affine.farthest(0.0) == D[at, sweep.labels].argmax()
    lam = np.quantile(D[at, sweep.labels], 0.99)
    beyond = np.flatnonzero(D[at, sweep.labels] > lam)
    found = [sweep.affine.first_beyond(b, 2000, lam) for b in (0, *(beyond + 1))]
    assert found == [*beyond, -1]


def test_rows_that_no_center_reaches():
    """The nearest score is at an infinite divergence, as that of all centers may be."""
    X = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]] * 300)
    sweep = sweep_over("logistic", X)
    sweep.start(np.array([[0.0, 0.5], [0.9, 0.0], [0.0, 0.4]]))
    sweep.assign()
    assert sweep.labels[:4].tolist() == [0, 1, 0, 2]
    exact = sweep.rule.between(X[:, None], sweep.centers)
    least = [np.log(2), -np.log(0.9), np.inf, -np.log(0.6)]
    assert exact[:4].min(axis=1).tolist() == pytest.approx(least)
    np.testing.assert_array_equal(sweep.labels, exact.argmin(axis=1))


@each_divergence
def test_threads_do_not_matter(name, eight_cores):
    """The same bits for 1, 2 and 3 threads, over many chunks."""
    rng = np.random.default_rng(2)
    X = rows(rng, name, 40_000, 6, 12) * (1.0 if name == "logistic" else rng.random(6))
    init = (X[:12] + 3.0 * X.mean(axis=0)) / 4.0
    for options in ({"lam": 1e30, "init": init}, {"lam": 8.0, "max_clusters": 12}):
        model = BregmanDPMeans(divergence=name, max_iter=12, **options)
        found = []
        for n_threads in (1, 2, 3):
            fit(model.set_params(n_threads=n_threads), X)
            found.append((model.labels_, model.cluster_centers_, model.objective_path_))
        for other in found[1:]:
            for one, two in zip(found[0], other, strict=True):
                assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("algorithm", ["serial", "delayed"])
@each_divergence
def test_many_rows_and_openings_are_those_of_the_twin(name, algorithm):
    """More rows than a block: clusters open in the order of visit, also after bounds were made."""
    rng = np.random.default_rng(3)
    X = rows(rng, name, 4500, 2, 8)
    X = X + 0.5 if name == "kl" else np.clip(X, 0.05, 0.95) if name == "logistic" else X
    X = X * rng.uniform(0.99, 1.0, size=X.shape)  # no ties
    lam = {"kl": 25.0, "itakura_saito": 9.0, "logistic": 1.0}[name]
    model = BregmanDPMeans(lam=lam, divergence=name, algorithm=algorithm).fit(X)
    twin = twins.bregman.bregman(X, lam, name, algorithm)
    assert model.n_clusters_ > 2 and model.n_iter_ == twin.n_iter
    np.testing.assert_array_equal(model.labels_, twin.labels)
    assert model.cluster_centers_.tobytes() == twin.centers.tobytes()


@each_divergence
def test_divergences(name):
    """Shapes that broadcast, the formulas, and the sum of the summands."""
    rng, rule = np.random.default_rng(4), DIVERGENCES[name]
    X, C = rng.uniform(0.01, 0.99, (30, 3)), rng.uniform(0.01, 0.99, (4, 3))
    table = divergences(rule.kind, X[:, None], C)
    assert table.shape == (30, 4)
    np.testing.assert_allclose(table, twins.bregman.divergences(X, C, name), rtol=1e-9, atol=1e-15)
    for m in range(4):
        assert np.array_equal(divergences(rule.kind, X, C[m]), table[:, m])
        assert np.array_equal(divergences(rule.kind, X[:4], C)[m], table[m, m])
        assert divergences(rule.kind, X[7], C[m]) == table[7, m]
    np.testing.assert_allclose(summands(rule.kind, X[:, None], C).sum(axis=-1), table, rtol=1e-12)
    edge = np.array([[0.0, 1.0]])
    if name != "itakura_saito":
        assert divergences(rule.kind, edge, edge)[0] == 0.0
        assert divergences(rule.kind, edge, np.array([0.0, 0.5]))[0] > 0.0
        assert divergences(rule.kind, 1.0 - edge, edge)[0] == np.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_means_within_members(dtype):
    """Means are clipped to the range of all members, however few rows that takes to see."""
    rng = np.random.default_rng(5)
    X = rng.integers(0, 3, size=(9000, 3)).astype(dtype) / 2
    label = rng.integers(-1, 4, size=9000).astype(np.int32)
    X[label == 2, 1], X[label == 3, 2] = 0.25, 1.0
    X[np.flatnonzero(label == 1)[-1], 0] = 0.0  # the last row alone says that 1 is too much
    X[np.flatnonzero(label == 1)[:-1], 0] = 1.0
    means = np.array([X[label == c].mean(axis=0, dtype=float) for c in range(4)])
    means = np.vstack([means, np.full(3, np.nan)])
    members = [X[label == c] for c in range(5)]
    low = np.array([rows.min(axis=0, initial=np.inf) for rows in members])
    high = np.array([rows.max(axis=0, initial=-np.inf) for rows in members])
    share = 1.0 / np.array([*np.bincount(label[label >= 0]), 1.0])
    found = within_members(means, X, label, share, 1.0)  # good to a few roundings
    assert np.array_equal(found, np.clip(means, low, high), equal_nan=True)
    means[2, 1], means[1, 0], means[0, 0] = np.nextafter(0.25, 1.0), 1.0, -0.0
    expected = np.clip(means, low, high)
    expected[1, 0] = np.nextafter(1.0, 0.0)
    found = within_members(means, X, label, np.zeros(5), 1.0)  # not so good
    assert np.array_equal(found, expected, equal_nan=True)
    assert found[2, 1] == 0.25 and found[3, 2] == 1.0 and not np.signbit(found[0, 0])


def test_arrays_must_match():
    X, label = np.ones((5, 2)), np.zeros(5, dtype=np.int32)
    numbers, place = np.ones(5), np.ones(2)
    with pytest.raises(ValueError, match="must match X"):
        AffineSweep(0, X, None, None, label[:4], place, *(numbers,) * 3, 1)
    with pytest.raises(ValueError, match="weight must match X"):
        AffineSweep(0, X, numbers[:4], None, label, place, *(numbers,) * 3, 1)
    sweep = AffineSweep(0, X, None, None, label, place, *(numbers,) * 3, 1)
    with pytest.raises(ValueError, match="there must be centers"):
        sweep.assign(0, 5)


@pytest.mark.timeout(120, method="thread")
def test_interrupt(interrupt):
    """A sweep of seconds stops."""
    X = np.random.default_rng(0).random((200_000, 20)) + 0.1
    model = BregmanDPMeans(lam=1e30, divergence="kl", init=X[:3000], n_threads=1)
    interrupt(1.0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert not hasattr(model, "labels_")
