"""The twins against answers worked out by hand, and against still simpler programs."""

from dataclasses import replace

import numpy as np
import pytest
import twins.dpmeans
import twins.exact
import twins.features
import twins.penalty
from helpers import seeds
from problems import (
    EXAMPLE_CASES,
    EXAMPLE_IDS,
    feature_problem,
    random_problem,
    tied_problem,
)


@pytest.mark.parametrize(("algorithm", "example"), EXAMPLE_CASES, ids=EXAMPLE_IDS)
def test_worked_example(algorithm, example):
    result = getattr(twins.dpmeans, algorithm)(example.X, example.lam, **example.options)
    assert result.labels.tolist() == example.labels
    np.testing.assert_allclose(result.centers[:, 0], example.centers)
    np.testing.assert_allclose(result.objective_path, example.path)
    assert result.objective == result.objective_path[-1]
    assert result.n_iter == example.n_iter
    assert result.n_clusters == len(example.centers)
    assert result.converged == ("max_iter" not in example.options)


def test_literal_sweep_on_a_worked_example():
    result = twins.dpmeans.serial_literal(np.array([[0.0], [1], [10], [11]]), 9)
    assert result.labels.tolist() == [0, 0, 1, 1]
    assert result.objective_path.tolist() == [19, 19]


@pytest.mark.parametrize("family", ["plain", "weights", "zero weights", "given centers", "cap"])
@seeds(30)
def test_serial_is_the_literal_algorithm(family, seed, monkeypatch):
    """Blocks of distances change nothing, not even on tied data."""
    p = tied_problem(seed, 60) if seed % 3 == 0 else random_problem(family, seed, n_max=80)
    monkeypatch.setattr(twins.exact, "RUN", 7)
    order = np.random.default_rng(seed).permutation(len(p.X)) if seed % 2 else None
    options = {
        "weights": p.weights, "init": p.init, "max_clusters": p.max_clusters, "order": order,
        "max_iter": 1 + seed,
    }  # fmt: skip
    fast = twins.dpmeans.serial(p.X, p.lam, **options)
    slow = twins.dpmeans.serial_literal(p.X, p.lam, **options)
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
        trial, kept = twins.exact.without_gaps(trial)
        sse = twins.exact.sum_of_squares(X, w, trial, twins.exact.weighted_means(X, w, trial))
        values[c] = sse + lam * len(kept)
    return min(values, key=values.get)


@seeds(20)
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
        labels, kept = twins.exact.without_gaps(labels)
        centers = twins.exact.weighted_means(p.X, w, labels)
        sse = twins.exact.sum_of_squares(p.X, w, labels, centers)
        values.append(sse + p.lam * len(kept))
    twin = twins.dpmeans.collapsed(p.X, p.lam, weights=w)
    assert np.array_equal(twin.labels, labels)
    np.testing.assert_allclose(twin.objective_path, values[: twin.n_iter], rtol=1e-12)


def test_tolerance():
    """The second sweep gains 4.75 of the 15.75 after the first."""
    X = np.array([[0.0], [0], [0], [3], [5]])
    for algorithm in (twins.dpmeans.serial, twins.dpmeans.delayed):
        result = algorithm(X, 4.5, tol=4.7 / 15.75)
        assert result.converged and result.n_iter == 3
        result = algorithm(X, 4.5, tol=4.8 / 15.75)
        assert result.converged and result.n_iter == 2
        np.testing.assert_allclose(result.objective_path, [15.75, 11, 11])


def test_farthest_first():
    """Mean 5.5: 0 and 11 are 30.25 away, then 1 and 10 are 1 away from those."""
    X = np.array([[0.0], [1], [10], [11]])
    assert [twins.penalty.farthest_first(X, k) for k in (1, 2, 3, 4)] == [30.25, 30.25, 1, 1]


def test_farthest_first_with_too_few_distinct_points():
    assert twins.penalty.farthest_first(np.array([[0.0], [0], [4], [4]]), 3) == 4
    assert twins.penalty.farthest_first(np.full((3, 2), 7.0), 2) == 1


def test_minibatch_step():
    """12 is farthest, opens a center and takes 10; the center 0 has seen weight 4 already."""
    labels, centers, counts = twins.dpmeans.minibatch_step(
        np.array([[1.0], [10], [12]]), [[0.0]], [4.0], 9
    )
    assert labels.tolist() == [0, 1, 1]
    np.testing.assert_allclose(centers, [[0.2], [11]])
    assert counts.tolist() == [5, 2]


def test_minibatch_step_with_weights_and_cap():
    """At the cap 12 joins 0; -5 has no weight and moves nothing."""
    labels, centers, counts = twins.dpmeans.minibatch_step(
        np.array([[-5.0], [2], [12]]), [[0.0]], [1.0], 9, weights=[0, 4, 0.5], max_clusters=1
    )
    assert labels.tolist() == [0, 0, 0]
    np.testing.assert_allclose(centers, [[14 / 5.5]])
    assert counts.tolist() == [5.5]


# Features -----------------------------------------------------------------------------------


def test_the_first_numbers_of_the_generator():
    """splitmix64 from 0 (its published test values)."""
    random = twins.features.uniforms(0)
    for value in (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F):
        assert next(random) == (value >> 11) / 2**53


def test_seeds_by_hand():
    """Squares 36, 16, 4: .3 of 56 is in the first, .9 of the 20 then left in the third.

    (6, 0) brings no other row closer. The third saves 4, which pays at lam = 3, not at 5.
    """
    X = np.array([[6.0, 0], [0, 4], [2, 0]])
    Z, A = twins.features.seed_features(X, iter([0.3, 0.9]), cap=2, mean=False, lam=3.0)
    assert A.tolist() == [[6, 0], [2, 0]]
    assert Z.tolist() == [[1, 0], [0, 0], [0, 1]]
    Z, A = twins.features.seed_features(X, iter([0.3, 0.7, 0.5]), cap=3, mean=False, lam=5.0)
    assert A.tolist() == [[6, 0], [0, 4]]
    Z, A = twins.features.seed_features(X, iter([]), cap=1, mean=True)
    np.testing.assert_allclose(A, [[8 / 3, 4 / 3]])
    assert Z.tolist() == [[1], [1], [1]]


def test_bp_means_by_hand():
    """9 is beyond lam = 4 and opens a feature; 4 is not; nothing is gained afterwards."""
    X = np.array([[2.0, 0], [0, 0], [0, 3]])
    result = twins.features.bp_means(X, 4.0, np.zeros((3, 0), dtype=int))
    assert result.Z.tolist() == [[0], [0], [1]]
    assert result.A.tolist() == [[0, 3]]
    assert result.path.tolist() == [8, 8] and (result.n_iter, result.error) == (2, 4)
    result = twins.features.bp_means([[4.0], [4], [1]], 2.0, [[1, 0], [1, 0], [0, 1]])
    assert result.Z.tolist() == [[1], [1], [0]]  # 1 is less than lam
    np.testing.assert_allclose(result.path, [3, 3])
    # 1100, 0011, 1111: the third column depends on the others
    Z = np.array([[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 1, 1]])
    assert twins.features.independent_columns(Z, np.ones(4)) == [0, 1]
    result = twins.features.bp_means([[5.0], [5], [7], [7]], 1.0, Z)
    assert result.Z.tolist() == Z[:, :2].tolist()


def test_k_features_by_hand():
    """5 takes 1, and what is left of it becomes the feature that nobody used."""
    for exact in (False, True):
        result = twins.features.k_features([[1.0], [1], [5]], [[1, 0], [1, 0], [0, 0]], exact=exact)
        assert result.Z.tolist() == [[1, 0], [1, 0], [1, 1]]
        np.testing.assert_allclose(result.A, [[1], [4]])
        np.testing.assert_allclose(result.path, [0, 0], atol=1e-25)


@seeds(10)
def test_collapsed_objective_is_a_trace(seed):
    """tr X'(I - Z (Z'Z)^-1 Z') X + lam K, and one sweep of flips never raises it."""
    p = replace(feature_problem(seed, 12), weights=None)
    X, Z, lam = p.doubles, p.Z, p.lam
    hat = Z @ np.linalg.inv(Z.T @ Z) @ Z.T
    trace = np.trace(X.T @ (np.eye(len(X)) - hat) @ X) + lam * Z.shape[1]
    error = twins.features.feature_error(X, Z, twins.features.least_squares(X, Z, p.w), p.w)
    np.testing.assert_allclose(error + lam * Z.shape[1], trace, rtol=1e-9)
    result = twins.features.bp_means(X, lam, Z, collapsed="exact")
    assert result.path[0] <= trace * (1 + 1e-9)


def test_encode():
    """Coordinate passes from nothing miss (3, 0) = (5, 4) + (-2, -4)."""
    A = np.array([[5.0, 4], [-2, -4]])
    X = [[3.0, 0], [5, 4], [0, -1], [-2, -4]]
    assert twins.features.encode(X, A).tolist() == [[0, 0], [1, 0], [0, 0], [0, 1]]
    assert twins.features.encode(X, A, exact=True).tolist() == [[1, 1], [1, 0], [0, 0], [0, 1]]
