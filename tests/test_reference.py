"""The twins against answers worked out by hand, and against still simpler programs."""

import numpy as np
import pytest
import reference
from problems import EXAMPLE_CASES, EXAMPLE_IDS, never_rises, random_problem, tied_problem


@pytest.mark.parametrize(("algorithm", "example"), EXAMPLE_CASES, ids=EXAMPLE_IDS)
def test_worked_example(algorithm, example):
    result = getattr(reference, algorithm)(example.X, example.lam, **example.options)
    assert result.labels.tolist() == example.labels
    np.testing.assert_allclose(result.centers[:, 0], example.centers)
    np.testing.assert_allclose(result.objective_path, example.path)
    assert result.objective == result.objective_path[-1]
    assert result.n_iter == example.n_iter
    assert result.n_clusters == len(example.centers)
    assert result.converged == ("max_iter" not in example.options)


def test_literal_sweep_on_a_worked_example():
    result = reference.serial_literal(np.array([[0.0], [1], [10], [11]]), 9)
    assert result.labels.tolist() == [0, 0, 1, 1]
    assert result.objective_path.tolist() == [19, 19]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("family", ["plain", "weights", "zero weights", "given centers", "cap"])
def test_serial_is_the_literal_algorithm(family, seed, monkeypatch):
    """Blocks of distances change nothing, not even on tied data."""
    p = tied_problem(seed, 60) if seed % 3 == 0 else random_problem(family, seed, n_max=80)
    monkeypatch.setattr(reference, "RUN", 7)
    order = np.random.default_rng(seed).permutation(len(p.X)) if seed % 2 else None
    options = {
        "weights": p.weights, "init": p.init, "max_clusters": p.max_clusters, "order": order,
        "max_iter": 1 + seed,
    }  # fmt: skip
    fast = reference.serial(p.X, p.lam, **options)
    slow = reference.serial_literal(p.X, p.lam, **options)
    assert np.array_equal(fast.labels, slow.labels)
    assert np.array_equal(fast.centers, slow.centers)
    assert np.array_equal(fast.objective_path, slow.objective_path)
    assert (fast.n_iter, fast.converged) == (slow.n_iter, slow.converged)


def best_label(X, w, labels, i, lam):
    """The label of row i that makes the whole objective smallest; K stands for a new one."""
    values = {}
    for c in [*np.unique(labels), labels.max() + 1]:
        trial = labels.copy()
        trial[i] = c
        trial, kept = reference.without_gaps(trial)
        sse = reference.sum_of_squares(X, w, trial, reference.weighted_means(X, w, trial))
        values[c] = sse + lam * len(kept)
    return min(values, key=values.get)


@pytest.mark.parametrize("seed", range(20))
def test_collapsed_is_the_greedy_choice(seed):
    """One sweep equals trying every cluster for every point, on the full objective."""
    p = random_problem("weights" if seed % 2 else "plain", seed, n_max=40)
    w = np.ones(len(p.X)) if p.weights is None else p.weights
    labels = np.zeros(len(p.X), dtype=int)
    values = []
    while len(values) < 2 or values[-1] < values[-2]:
        for i in range(len(p.X)):
            new = best_label(p.X, w, labels, i, p.lam)
            if not (new == labels.max() + 1 and np.sum(labels == labels[i]) == 1):
                labels[i] = new
        labels, kept = reference.without_gaps(labels)
        centers = reference.weighted_means(p.X, w, labels)
        sse = reference.sum_of_squares(p.X, w, labels, centers)
        values.append(sse + p.lam * len(kept))
    twin = reference.collapsed(p.X, p.lam, weights=w)
    assert np.array_equal(twin.labels, labels)
    np.testing.assert_allclose(twin.objective_path, values[: twin.n_iter], rtol=1e-12)


@pytest.mark.parametrize("algorithm", ["serial", "delayed", "collapsed"])
@pytest.mark.parametrize("seed", range(12))
def test_objective_never_rises(algorithm, seed):
    for p in (tied_problem(seed, 100), random_problem("everything", seed, n_max=100)):
        result = getattr(reference, algorithm)(
            p.X, p.lam, weights=p.weights, init=p.init, max_clusters=p.max_clusters
        )
        assert never_rises(result.objective_path)
        assert result.converged


def test_tolerance():
    """The second sweep gains 4.75 of the 15.75 after the first."""
    X = np.array([[0.0], [0], [0], [3], [5]])
    for algorithm in (reference.serial, reference.delayed):
        result = algorithm(X, 4.5, tol=4.7 / 15.75)
        assert result.converged and result.n_iter == 3
        result = algorithm(X, 4.5, tol=4.8 / 15.75)
        assert result.converged and result.n_iter == 2
        np.testing.assert_allclose(result.objective_path, [15.75, 11, 11])


def test_farthest_first():
    """Mean 5.5: 0 and 11 are 30.25 away, then 1 and 10 are 1 away from those."""
    X = np.array([[0.0], [1], [10], [11]])
    assert [reference.farthest_first(X, k) for k in (1, 2, 3, 4)] == [30.25, 30.25, 1, 1]


def test_farthest_first_with_too_few_distinct_points():
    assert reference.farthest_first(np.array([[0.0], [0], [4], [4]]), 3) == 4
    assert reference.farthest_first(np.full((3, 2), 7.0), 2) == 1


def test_minibatch_step():
    """12 is farthest, opens a center and takes 10; the center 0 has seen mass 4 already."""
    labels, centers, counts = reference.minibatch_step(
        np.array([[1.0], [10], [12]]), [[0.0]], [4.0], 9
    )
    assert labels.tolist() == [0, 1, 1]
    np.testing.assert_allclose(centers, [[0.2], [11]])
    assert counts.tolist() == [5, 2]


def test_minibatch_step_with_weights_and_cap():
    """At the cap 12 joins 0; -5 has no weight and moves nothing."""
    labels, centers, counts = reference.minibatch_step(
        np.array([[-5.0], [2], [12]]), [[0.0]], [1.0], 9, weights=[0, 4, 0.5], max_clusters=1
    )
    assert labels.tolist() == [0, 0, 0]
    np.testing.assert_allclose(centers, [[14 / 5.5]])
    assert counts.tolist() == [5.5]
