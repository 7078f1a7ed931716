"""BPMeans, KFeatures, feature_path: equal to the twins, to answers by hand, to known answers."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import sklearn
import twins.features
import twins.penalty
from helpers import fit, seeds
from problems import (
    PLANTED,
    check_features,
    dice,
    feature_problem,
    planted_features,
    same_columns,
    tied_feature_problem,
)
from smallvar._sweeps.features.starts import MOST_TRIED, FeatureSweep
from smallvar._sweeps.sums import Layout, Sums

from smallvar import BPMeans, KFeatures, feature_path, progress_callback
from smallvar._features.feature_path import Steps
from smallvar._features.starts import FeatureStarts

COLLAPSED = {"collapsed": "auto", "bit by bit": "coordinate"}  # how rows are chosen
FIXED = ("coordinate", "exact")  # K does not change
each_assignment = pytest.mark.parametrize("assign", FIXED)
RULES = ("sweep", *COLLAPSED, *FIXED)
each_rule = pytest.mark.parametrize("rule", RULES)
sweep_and_collapsed = pytest.mark.parametrize("algorithm", ["sweep", "collapsed"])
each_algorithm = pytest.mark.parametrize("algorithm", ["sweep", "collapsed", "stepwise"])
weighted_or_not = pytest.mark.parametrize("weighted", [False, True])


def new_starts(X, weight, rule, *options):
    """The compiled starts that use this rule."""
    if rule in COLLAPSED:
        most_tried = MOST_TRIED if COLLAPSED[rule] == "auto" else 0
        return FeatureSweep(X, weight, "collapsed", *options, most_tried=most_tried)
    return FeatureSweep(X, weight, rule, *options)


def run_sweep(p, rule, states=None, *, n_threads=1, n_swaps=0, max_iter=300, **ends):
    """The best of the compiled starts from these states of the generator."""
    cap = p.n_components if rule in FIXED else p.max_features or len(p.X)
    states = [p.state] if states is None else states
    sweep = new_starts(p.X, p.weights, rule, p.lam, cap, max_iter, 0.0, n_swaps, n_threads, None)
    modes = np.full(len(states), not p.mean, dtype=np.intc)
    sweep.run(np.array(states, dtype=np.uint64), modes, **ends)
    return sweep


def run_twin(p, rule, state=None):
    """The twin of one start."""
    fixed = rule in FIXED
    random = twins.features.uniforms(p.state if state is None else state)
    cap = p.n_components if fixed else p.max_features or len(p.X)
    Z, A = twins.features.seed_features(
        p.doubles, random, lam=None if fixed else p.lam, cap=cap, mean=p.mean, weights=p.weights
    )
    return iterate(p, rule, Z, A)


def iterate(p, rule, Z, A=None):
    """The twin from Z and A."""
    X, cap = p.doubles, p.max_features or len(p.X)
    if rule in FIXED:
        return twins.features.k_features(X, Z, A, exact=rule == "exact", weights=p.weights)
    collapsed = COLLAPSED.get(rule, "")
    return twins.features.bp_means(
        X, p.lam, Z, A, collapsed=collapsed, max_features=cap, weights=p.weights
    )


def estimator(p, rule, **options):
    """The estimator whose starts use this rule."""
    if rule in FIXED:
        return KFeatures(p.n_components, assign=rule, **options)
    return with_penalty(rule, p.lam, max_features=p.max_features, **options)


def with_penalty(rule, lam, **options):
    """The BPMeans whose starts use this rule."""
    if rule in COLLAPSED:
        return BPMeans(lam=lam, algorithm="collapsed", assign=COLLAPSED[rule], **options)
    return BPMeans(lam=lam, algorithm=rule, **options)


# Twins --------------------------------------------------------------------------------------


@each_rule
@seeds(lambda rule: 60 if rule in COLLAPSED else 100)
def test_seeded_start_equals_twin(rule, seed):
    """In general position: the same Z, sweep by sweep, from the same random numbers."""
    p = feature_problem(seed, 25 if rule in COLLAPSED else 60)
    sweep, twin = run_sweep(p, rule, n_threads=1 + seed % 3), run_twin(p, rule)
    assert np.array_equal(sweep.assignments(), twin.Z)
    assert sweep.n_iter == twin.n_iter
    assert sweep.converged == twin.converged
    path = twin.path
    np.testing.assert_allclose(sweep.path(), path, rtol=0, atol=1e-9 * path[0])
    np.testing.assert_allclose(sweep.objective, twin.objective, rtol=1e-9, atol=1e-12 * path[0])
    reach = 1e-9 * np.abs(p.doubles).max()
    np.testing.assert_allclose(sweep.components(), twin.A, rtol=0, atol=reach)
    assert sweep.objectives.tolist() == [sweep.objective]


@each_rule
@seeds(lambda rule: 60 if rule in COLLAPSED else 100)
def test_given_start_equals_twin(rule, seed):
    """The same through the estimator, which starts from the least squares solution for Z."""
    p = feature_problem(1000 + seed, 25 if rule in COLLAPSED else 60)
    model = estimator(p, rule, init=p.Z, n_threads=1 + seed % 3)
    warned = fit(model, p.X, p.weights)
    check_features(model, p.X, p.weights)
    twin = iterate(p, rule, p.Z)
    path = twin.path
    if rule in FIXED and twin.tied:  # no general position: equal only as far as nothing ties
        np.testing.assert_allclose(model.objective_path_[0], path[0], rtol=1e-9)
        return
    assert np.array_equal(model.assignments_, twin.Z)
    assert model.n_iter_ == twin.n_iter
    assert warned == (not twin.converged)
    np.testing.assert_allclose(model.objective_path_, path, rtol=0, atol=1e-9 * path[0])
    error = model.reconstruction_err_**2
    np.testing.assert_allclose(error, twin.error, rtol=1e-9, atol=1e-12 * path[0])


@pytest.mark.parametrize("rule", COLLAPSED)
@seeds(300)
def test_collapsed_equals_twin_at_ties(rule, seed):
    """From the same Z, label for label: integers, duplicates, no noise; rows of zeros, and caps."""
    p = tied_feature_problem(2000 + seed, 14) if seed % 4 else feature_problem(2000 + seed, 14)
    cap = max(2, p.Z.shape[1]) if seed % 3 else None
    if seed % 2:
        p.X[::3] = 0
    p = replace(p, max_features=cap)
    model, twin = estimator(p, rule, init=p.Z), iterate(p, rule, p.Z)
    assert not fit(model, p.X, p.weights)
    assert np.array_equal(model.assignments_, twin.Z)
    assert model.n_iter_ == twin.n_iter
    rounding = 1e-14 * (p.w @ np.square(p.doubles).sum(axis=1))
    np.testing.assert_allclose(model.objective_path_, twin.path, rtol=1e-9, atol=rounding)


@pytest.mark.parametrize("k", [12, 13])
def test_rows_are_tried_up_to_twelve_features(k):
    """With one more they flip bit by bit, as the twin, and the two ways are one."""
    rng = np.random.default_rng(k)
    A, Z = rng.normal(size=(k, 6)), rng.integers(0, 2, size=(18, k))
    X = Z @ A + 0.5 * rng.normal(size=(18, 6))
    start = np.where(rng.random(Z.shape) < 0.15, 1 - Z, Z)
    models = {}
    for rule, assign in COLLAPSED.items():
        models[assign] = with_penalty(rule, 0.01, init=start, max_features=k).fit(X)
        twin = twins.features.bp_means(X, 0.01, start, collapsed=assign, max_features=k)
        assert np.array_equal(models[assign].assignments_, twin.Z)
        assert models[assign].n_components_ == k
    same = np.array_equal(models["auto"].assignments_, models["coordinate"].assignments_)
    assert same == (k > 12)
    if k <= 12:  # "exact" is the same where it is possible
        exact = models["auto"].set_params(assign="exact")
        auto = exact.assignments_
        assert np.array_equal(exact.fit(X).assignments_, auto)


@pytest.mark.parametrize("most_tried", [-1, MOST_TRIED + 1])
def test_no_more_rows_are_tried_than_there_is_memory_for(most_tried):
    with pytest.raises(ValueError, match=f"most_tried must be >= 0 and <= 12, got {most_tried}"):
        FeatureSweep(np.eye(3), None, "collapsed", 1.0, 3, 9, 0.0, 0, 1, None, most_tried)


@each_algorithm
def test_how_rows_of_bp_means_choose(algorithm):
    """By default exactly in the collapsed form, and bit by bit in the others."""
    X = planted_features("signed", 3, n=40, d=5, k=4, noise=1.0)[0]
    options = {"lam": 0.01 * np.square(X).sum(), "max_features": 6, "n_init": 1, "n_swaps": 0}
    auto = BPMeans(algorithm=algorithm, random_state=0, **options).fit(X)
    assert auto.assign == "auto"
    same = {}
    for assign in ("exact", "coordinate"):
        model = BPMeans(algorithm=algorithm, assign=assign, random_state=0, **options)
        if assign == "coordinate" or algorithm == "collapsed":
            path = model.fit(X).objective_path_
            same[assign] = np.array_equal(path, auto.objective_path_)
    assert same == (
        {"exact": True, "coordinate": False} if algorithm == "collapsed" else {"coordinate": True}
    )


def test_exact_path_of_bp_means():
    """With more than 8 features, the path chooses exactly only where that is asked for."""
    X = planted_features("signed", 1, n=60, d=12, k=9, noise=0.1)[0]
    options = {"algorithm": "collapsed", "max_features": 12, "n_init": 2, "random_state": 0}
    exact = BPMeans(assign="exact", **options).fit(X).path_
    assert len(exact.error) > 10
    features = KFeatures("auto", assign="exact", n_init=2, random_state=0).fit(X).path_
    assert np.array_equal(exact.error, features.error)
    auto = BPMeans(assign="auto", **options).fit(X).path_
    assert np.array_equal(auto.error[:9], exact.error[:9])
    assert not np.array_equal(auto.error[9:], exact.error[9:])


@each_rule
@seeds(9)
def test_tied_data(rule, seed):
    """Every start ends in what its Z and A are worth; the best of many is none the worse."""
    p = tied_feature_problem(seed, 6)
    states = [p.state + i for i in range(40)]
    sweeps = [run_sweep(p, rule, [state]) for state in states]
    runs = [run_twin(p, rule, state) for state in states]
    rounding = 1e-14 * (p.w @ np.square(p.X).sum(axis=1))
    for sweep, twin in zip(sweeps, runs, strict=True):
        Z, A, path = sweep.assignments(), sweep.components(), sweep.path()
        value = twins.features.feature_error(p.X, Z, A, p.w) + (rule not in FIXED) * p.lam * len(A)
        np.testing.assert_allclose(sweep.objective, value, rtol=1e-9, atol=rounding)
        assert np.all(np.diff(path) <= 1e-9 * path[0])
        assert sweep.converged
        if np.array_equal(Z, twin.Z):
            np.testing.assert_allclose(value, twin.objective, rtol=1e-9, atol=rounding)
    together = run_sweep(p, rule, states, n_threads=2)
    assert together.objectives.tolist() == [sweep.objective for sweep in sweeps]
    assert together.objective == min(together.objectives)
    if seed % 4 < 2:  # (tenths and thirds are no ties to numpy, whose starts so go further apart)
        best = min(run_sweep(replace(p, mean=m), rule, range(500)).objective for m in (0, 1))
        assert best <= min(twin.objective for twin in runs) * (1 + 1e-9) + rounding


@seeds(12)
def test_best_of_all_assignments(seed):
    """Five rows, two features: the optimum over every Z is a fixed point, and none is lower."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, size=(5, 2)).astype(float) if seed % 2 else rng.normal(size=(5, 2))
    weights = rng.gamma(1.0, size=5) if seed % 3 == 0 else None
    w = np.ones(5) if weights is None else weights
    optima = [(w @ np.square(X).sum(axis=1), np.zeros((5, 0)))]
    for k in (1, 2):
        every = np.array(list(product((0, 1), repeat=5 * k))).reshape(-1, 5, k)
        errors = [
            twins.features.feature_error(X, Z, twins.features.least_squares(X, Z, w), w)
            for Z in every
        ]
        optima.append((min(errors), every[np.argmin(errors)]))
        for assign in FIXED:
            model = KFeatures(k, assign=assign, n_init=50, n_swaps=10, random_state=0)
            assert model.fit(X, sample_weight=weights).objective_ >= min(errors) * (1 - 1e-9)
            model.set_params(init=optima[k][1]).fit(X, sample_weight=weights)
            np.testing.assert_allclose(model.objective_, min(errors), rtol=1e-9, atol=1e-12)
    for lam in (0.3 * optima[0][0], 0.5 * (optima[0][0] - optima[1][0])):
        values = [error + lam * k for k, (error, _) in enumerate(optima)]
        best, Z = min(values), optima[np.argmin(values)][1]
        for algorithm in ("sweep", "collapsed"):
            model = BPMeans(
                lam=lam, algorithm=algorithm, max_features=2, n_swaps=10, random_state=0
            )
            assert model.fit(X, sample_weight=weights).objective_ >= best * (1 - 1e-9)
            model.set_params(init=Z).fit(X, sample_weight=weights)
            np.testing.assert_allclose(model.objective_, best, rtol=1e-9, atol=1e-12)


# Worked examples ----------------------------------------------------------------------------


@sweep_and_collapsed
def test_a_feature_that_loses_its_last_user_refunds_its_penalty(algorithm):
    """(0, 1) costs 1 without its feature, and lam = 2 with it; at lam = 1 that is a tie."""
    X, Z = np.array([[4.0, 0], [4, 0], [0, 1]]), np.array([[1, 0], [1, 0], [0, 1]])
    model = BPMeans(lam=2.0, init=Z, algorithm=algorithm).fit(X)
    assert model.assignments_.tolist() == [[1], [1], [0]]
    np.testing.assert_allclose(model.components_, [[4, 0]])
    np.testing.assert_allclose(model.objective_path_, [3, 3])
    assert (model.n_iter_, model.reconstruction_err_) == (2, 1)
    tie = BPMeans(lam=1.0, init=Z, algorithm=algorithm).fit(X)
    assert np.array_equal(tie.assignments_, Z)
    assert tie.objective_path_.tolist() == [2]


def test_a_residual_exactly_at_lam_stays():
    """4 is not beyond lam = 4, 9 is; a weight of 2 makes it 8."""
    X, nothing = np.array([[2.0, 0], [0, 0], [0, 3]]), np.zeros((3, 0))
    model = BPMeans(lam=4.0, init=nothing).fit(X)
    assert model.components_.tolist() == [[0, 3]]
    assert model.assignments_.tolist() == [[0], [0], [1]]
    assert model.objective_path_.tolist() == [8, 8]
    weighted = BPMeans(lam=4.0, init=nothing).fit(X, sample_weight=[2, 1, 1])
    np.testing.assert_allclose(weighted.components_, [[2, 0], [0, 3]])
    assert BPMeans(lam=np.nextafter(4.0, 0), init=nothing).fit(X).n_components_ == 2


@sweep_and_collapsed
def test_collapsed_moves_where_the_sweep_stays(algorithm):
    """Alone in the data, x = 3 has residual 0; beside 2 and 2 it costs 2/3 (1 / (1 + 1/2)).

    The sweep compares the residual at the mean, (2/3)^2 = 4/9, with lam = 1/2.
    """
    model = BPMeans(lam=0.5, init=[[1], [1], [1]], algorithm=algorithm).fit([[2.0], [2], [3]])
    if algorithm == "sweep":
        np.testing.assert_allclose(model.objective_path_, [2 / 3 + 1 / 2])
    else:
        assert model.assignments_.tolist() == [[1, 0], [1, 0], [1, 1]]
        np.testing.assert_allclose(model.components_, [[2], [1]])
        np.testing.assert_allclose(model.objective_path_, [1, 1])


def test_max_features():
    """The first two rows open; a place is free again as soon as a feature goes."""
    X = np.diag([3.0, 4, 5])
    model = BPMeans(lam=1.0, init=np.zeros((3, 0)), max_features=2).fit(X)
    assert model.components_.tolist() == [[3, 0, 0], [0, 4, 0]]
    assert model.objective_path_.tolist() == [27, 27]
    X = np.array([[1.0, 0], [0, 3]])
    model = BPMeans(lam=2.0, init=[[1], [0]], max_features=1).fit(X)
    assert model.components_.tolist() == [[0, 3]]
    assert model.objective_path_.tolist() == [3, 3]


THREE = np.array([[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 1, 1]])  # 1100, 0011, 1111


@sweep_and_collapsed
def test_dependent_columns_are_dropped(algorithm):
    """The third column is the sum of the others: dropped, whatever its place in the data."""
    X = np.array([[5.0, 0], [5, 0], [0, 7], [0, 7]])
    model = BPMeans(lam=1.0, init=THREE, algorithm=algorithm).fit(X)
    assert np.array_equal(model.assignments_, THREE[:, :2])
    np.testing.assert_allclose(model.components_, [[5, 0], [0, 7]], atol=1e-15)
    assert model.objective_path_.tolist() == [2]
    alike = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1]])
    model = BPMeans(lam=1.0, init=alike, algorithm=algorithm).fit(X)
    assert np.array_equal(model.assignments_, alike[:, [0, 2]])
    assert model.objective_ == 2


@each_assignment
def test_minimum_norm(assign):
    """a + c = (5, 0) and b + c = (0, 7): the shortest solution has c = (a + b + 2c) / 3."""
    X = np.array([[5.0, 0], [5, 0], [0, 7], [0, 7]])
    model = KFeatures(3, init=THREE, assign=assign).fit(X)
    assert np.array_equal(model.assignments_, THREE)
    expected = np.array([[10, -7], [-5, 14], [5, 7]]) / 3
    np.testing.assert_allclose(model.components_, expected, rtol=1e-14)
    assert model.objective_path_.tolist() == [0]
    model = KFeatures(2, init=[[1, 1]] * 3, assign=assign).fit([[6.0, 4.0]] * 3)
    np.testing.assert_allclose(model.components_, [[3, 2], [3, 2]], rtol=1e-14)


@each_assignment
def test_an_unused_feature_restarts_as_the_largest_residual(assign):
    """5 takes 1 and is left with 4, which becomes the second feature; w r^2 decides."""
    model = KFeatures(2, init=[[1, 0], [1, 0], [0, 0]], assign=assign).fit([[1.0], [1], [5]])
    assert model.assignments_.tolist() == [[1, 0], [1, 0], [1, 1]]
    np.testing.assert_allclose(model.components_, [[1], [4]])
    np.testing.assert_allclose(model.objective_path_, [0, 0], atol=1e-25)
    X, init = np.array([[6.0, 0, 0], [0, 2, 0], [0, 0, 1]]), [[1, 0], [0, 0], [0, 0]]
    model = KFeatures(2, init=init, assign=assign).fit(X)
    assert model.components_.tolist() == [[6, 0, 0], [0, 2, 0]]
    model.fit(X, sample_weight=[1, 1, 5])
    assert model.components_.tolist() == [[6, 0, 0], [0, 0, 1]]


def test_exact_finds_what_takes_two_flips():
    """(3, 0) is (5, 4) + (-2, -4), but each of them alone is farther than nothing."""
    X = np.array([[5.0, 4], [5, 4], [5, 4], [-2, -4], [-2, -4], [-2, -4], [3, 0]])
    Z = np.array([[1, 0]] * 3 + [[0, 1]] * 3 + [[0, 0]])
    model = KFeatures(2, init=Z).fit(X)
    assert model.assignments_[-1].tolist() == [0, 0] and model.objective_ == 9
    exact = KFeatures(2, init=Z, assign="exact").fit(X)
    assert exact.assignments_[-1].tolist() == [1, 1]
    np.testing.assert_allclose(exact.objective_path_, [0, 0], atol=1e-25)


@each_algorithm
def test_no_feature_at_all(algorithm):
    """Where none pays, the objective is the square of the data."""
    X = np.eye(2)
    model = BPMeans(lam=10.0, algorithm=algorithm, random_state=0).fit(X)
    assert (model.n_components_, model.objective_) == (0, 2)
    assert model.components_.shape == (0, 2) and model.assignments_.shape == (2, 0)
    assert model.transform(np.ones((5, 2))).shape == (5, 0)
    assert np.array_equal(model.inverse_transform(np.zeros((5, 0))), np.zeros((5, 2)))
    assert model.score(np.ones((5, 2))) == -10
    assert model.get_feature_names_out().tolist() == []
    check_features(model, X)


@pytest.mark.parametrize("n_swaps", [0, 3])
def test_all_zero_data(n_swaps):
    X = np.zeros((6, 3))
    for algorithm in ("sweep", "collapsed", "stepwise"):
        for lam in ("auto", "farthest-first"):
            options = {"algorithm": algorithm, "n_swaps": n_swaps, "random_state": 0}
            model = BPMeans(lam=lam, n_components=3, **options)
            assert not fit(model, X)
            assert (model.n_components_, model.objective_, model.lam_) == (0, 0, 1)
    for assign in FIXED:
        model = KFeatures(2, assign=assign, n_swaps=n_swaps, random_state=0)
        assert not fit(model, X)
        assert model.objective_ == 0 and not model.components_.any()


@sweep_and_collapsed
def test_a_feature_of_zeros_goes(algorithm):
    """1 and -1 share the feature 0."""
    model = BPMeans(lam=2.0, init=[[1], [1]], algorithm=algorithm).fit([[1.0], [-1.0]])
    assert (model.n_components_, model.objective_path_.tolist()) == (0, [2])


@pytest.mark.timeout(10)
@pytest.mark.parametrize("size", [1, 1e4])
def test_a_row_halfway_between_zero_and_a_feature(size):
    """To rounding it belongs to both: the passes must not go back and forth for ever."""
    for a, b in [(2.5, 0.8), (0.1, 0.8), (0.3, 0.3), (0.3, 0.8), (0.6, 0.6)]:
        model = KFeatures(1, init=[[1]]).fit([[a, b]])
        X = np.array([[a / 2 - size * b, b / 2 + size * a]])
        Z = model.transform(X)
        error = np.square(X - Z @ [[a, b]]).sum()
        np.testing.assert_allclose(error, np.square(X).sum(), rtol=1e-12)


def test_collapsed_ends_where_a_row_of_zeros_has_features():
    """Zero is a sum of features here, and flips that gain nothing but rounding go on for ever."""
    X = np.array([[-1.0, 1, -1, 0, -1, 1]]).T
    Z = np.array([[0, 1], [0, 0], [0, 0], [0, 1], [1, 1], [1, 0]])
    model = BPMeans(lam=0.0625, init=Z, algorithm="collapsed")
    assert not fit(model, X)
    twin = twins.features.bp_means(X, 0.0625, Z, collapsed="exact")
    np.testing.assert_allclose(model.objective_, twin.objective)
    assert model.n_iter_ <= twin.n_iter + 1


# Known answers ------------------------------------------------------------------------------


def data_file(name):
    path = Path(os.environ.get("SMALLVAR_DATA", ""), name)
    if not path.is_file():
        pytest.skip(f"SMALLVAR_DATA is not a folder with {name}")
    return np.loadtxt(path, delimiter=",", skiprows=1)


def test_pictures_of_four_objects():
    """Every subset of four objects: K = 4 leaves nothing, and one feature is the best of 2^16."""
    X, Z = dice()
    patterns, first, number = np.unique(Z @ [1, 2, 4, 8], return_index=True, return_counts=True)
    subsets = np.array(list(product((0.0, 1.0), repeat=16)))[1:, patterns]
    sums = (subsets * number) @ X[first]
    saved = np.square(sums).sum(axis=1) / np.maximum(subsets @ number, 1)
    single = KFeatures(1, n_init=500, n_swaps=0, random_state=0).fit(X)
    np.testing.assert_allclose(single.objective_, np.square(X).sum() - saved.max(), rtol=1e-9)
    four = KFeatures(4, n_init=2000, n_swaps=0, random_state=0).fit(X)
    assert four.objective_ == 0
    assert same_columns(Z, four.assignments_) == 1
    for algorithm in ("sweep", "collapsed", "stepwise"):
        model = BPMeans(lam=10.0, algorithm=algorithm, n_init=1000, n_swaps=0, random_state=0).fit(
            X
        )
        assert model.n_components_ == 4
        np.testing.assert_allclose(model.objective_, 40, rtol=1e-12)
        assert same_columns(Z, model.assignments_) == 1


def test_dice():
    """The authors' program reaches 768.5, 518.1, 252.0 and 0.0."""
    X = data_file("bp_means_simulated.csv") / 255
    best = [
        KFeatures(k, n_init=5000, n_swaps=0, random_state=0).fit(X).objective_ for k in (1, 2, 3, 4)
    ]
    np.testing.assert_allclose(best, [768.5, 513.9, 252.0, 0.0], atol=0.05)
    model = BPMeans(lam=40.0, n_init=3000, n_swaps=0, random_state=0).fit(X)
    assert model.n_components_ == 4
    np.testing.assert_allclose(model.objective_, 160, rtol=1e-9)
    assert np.isin(model.components_.round(9), (0, 1)).all()


@pytest.mark.long
def test_tabletop():
    """The authors' program: 615.9 423.2 295.3 205.8 161.2 156.1 150.9 143.5."""
    X = data_file("bp_means_tabletop_pca100.csv")
    known = [615.9, 423.2, 295.3, 205.8, 161.2, 156.1, 142.4, 140.5]
    for k, value in enumerate(known, start=1):
        if k < 7:
            model = KFeatures(k, n_init=10_000 if k == 6 else 3000, n_swaps=0, random_state=0)
        else:
            model = KFeatures(k, assign="exact", n_init=500, n_swaps=10, random_state=0)
        assert model.fit(X).objective_ < value + 0.05


def test_tabletop_by_whole_rows():
    """The paper has the optimum among 1,000 starts from the mean; bit by bit it is seldom there."""
    X = data_file("bp_means_tabletop_pca100.csv")
    starts = np.random.default_rng(0).integers(2**62, size=3000, dtype=np.uint64)
    modes, found = np.zeros(3000, dtype=np.intc), {}
    for rule in COLLAPSED:
        sweep = new_starts(X, None, rule, 20.0, len(X), 300, 0.0, 0, 2, None)
        sweep.run(starts, modes)
        found[rule] = sweep.objectives
    assert found["collapsed"].min() == pytest.approx(261.24, abs=0.01)
    assert np.median(found["collapsed"]) < 325
    assert np.median(found["bit by bit"]) > 345


# Sums -----------------------------------------------------------------------------------------


def sums_of(X, Z, weight):
    """Z'WZ, Z'WX and counts, each a fresh exact sum over the rows that have the features."""
    layout = Layout(X, weight, 1, origin=np.zeros(X.shape[1]))

    def over(rows):
        sums = Sums(layout, 1)
        sums.add(X, np.where(rows, 0, -1).astype(np.int32), weight)
        total, weights = sums.totals
        return total[0], weights[0]

    k = Z.shape[1]
    both = [[over((Z[:, i] & Z[:, j]) == 1)[1] for j in range(k)] for i in range(k)]
    return np.array(both), np.array([over(z == 1)[0] for z in Z.T]), Z.sum(axis=0)


@pytest.mark.parametrize("kind", ["plain", "weights", "float32", "Fortran order", "far", "heavy"])
@each_rule
def test_sums_kept_up_are_sums_from_scratch(rule, kind):
    """After sweeps, swaps and removals, bit for bit."""
    rng = np.random.default_rng(11)
    X = planted_features("signed", 1, n=700, d=5, k=4, noise=0.5)[0]
    weight = rng.gamma(1.0, size=700) + 0.01 if kind == "weights" else None
    if kind == "heavy":
        weight = 10.0 ** rng.integers(-5, 6, size=700)
    if kind == "far":
        X = X + np.array([0.0, 1e3, 1e6, 0.0, 0.0])
    X = X.astype(np.float32) if kind == "float32" else X
    X = np.asfortranarray(X) if kind == "Fortran order" else X
    lam = 0.02 * np.square(X - X.mean(axis=0)).sum()
    fixed = rule in ("coordinate", "exact")
    for n_threads in (1, 3):
        sweep = new_starts(X, weight, rule, 0.0 if fixed else lam, 5, 30, 0.0, 4, n_threads, None)
        sweep.run(np.arange(4, dtype=np.uint64), np.array([0, 1, 0, 1], dtype=np.intc))
        assert sweep.k > 1
        for mine, fresh in zip(sweep.sums(), sums_of(X, sweep.assignments(), weight), strict=True):
            assert np.array_equal(mine, fresh)


@pytest.mark.parametrize("n", [999, 60_000])
@weighted_or_not
@pytest.mark.parametrize("rule", ["coordinate", "exact"])
def test_a_fit_does_not_know_the_order_of_the_rows(rule, weighted, n):
    """K features from given rows of Z: the same bits in features and objective."""
    rng = np.random.default_rng(6)
    X = planted_features("signed", 2, n=n, d=6, k=4, noise=0.6)[0] + 3.0
    weight = rng.gamma(1.0, size=n) + 0.01 if weighted else None
    Z = (rng.random((n, 4)) < 0.4).astype(np.uint8)

    def run(order, n_threads):
        sweep = FeatureSweep(
            X[order], None if weight is None else weight[order], rule, 0.0, 4, 8, 0.0, 0, n_threads,
            None,
        )  # fmt: skip
        sweep.run_given(Z[order], 0)
        return sweep

    one = run(np.arange(n), 1)
    assert one.n_iter > 3
    for n_threads in (1, 2, 3):
        order = rng.permutation(n)
        other = run(order, n_threads)
        assert np.array_equal(other.assignments(), one.assignments()[order])
        assert other.components().tobytes() == one.components().tobytes()
        assert other.path().tobytes() == one.path().tobytes()
        assert other.error == one.error


# Collapsed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1e3])
@seeds(3)
def test_updated_state_does_not_drift(seed, offset):
    """After thousands of rank-one updates the objective is still that of the data themselves."""
    X, _, _ = planted_features("signed", seed, n=300, d=8, k=10, noise=0.5)
    lam = 0.02 * np.square(X).sum()
    X = X + offset
    start = np.random.default_rng(seed).integers(0, 2, size=(300, 10)).astype(np.uint8)

    def run(max_iter):
        sweep = FeatureSweep(X, None, "collapsed", 0.1 * lam, 12, max_iter, 0.0, 0, 1, None)
        sweep.run_given(start, 0)
        return sweep

    sweep = run(300)
    assert sweep.k >= 9 and sweep.n_iter > 3
    for max_iter in range(1, sweep.n_iter):
        stopped = run(max_iter)  # its objective is one of the data, not of updates
        np.testing.assert_allclose(sweep.path()[stopped.n_iter - 1], stopped.objective, rtol=1e-9)
    Z, A = sweep.assignments(), sweep.components()
    value = twins.features.feature_error(X, Z, A, np.ones(300)) + 0.1 * lam * sweep.k
    np.testing.assert_allclose(sweep.objective, value, rtol=1e-9)
    assert np.all(np.diff(sweep.path()) <= 1e-9 * sweep.path()[0])


# Options ------------------------------------------------------------------------------------


@each_rule
@seeds(6)
def test_swaps_only_help(rule, seed):
    """Each start goes on from where it would have ended."""
    X = planted_features(PLANTED[seed % 4], seed, n=60, d=6, k=4, noise=0.3)[0]
    w = np.random.default_rng(seed).gamma(1.0, size=60) + 0.1 if seed % 2 else None
    lam, objectives, before = 0.02 * np.square(X).sum(), [], np.inf
    for n_swaps in (0, 5, 20):
        cap = 4 if rule in FIXED else 60
        sweep = new_starts(X, w, rule, lam, cap, 300, 0.0, n_swaps, 1 + seed % 3, None)
        modes = np.arange(10, dtype=np.intc) % 2
        sweep.run(np.arange(10, dtype=np.uint64) + np.uint64(seed), modes)
        objectives.append(sweep.objectives)
        assert np.all(np.diff(sweep.path()) <= 1e-9 * sweep.path()[0])
        options = {"n_swaps": n_swaps, "random_state": seed}
        if rule in FIXED:
            model = KFeatures(4, assign=rule, **options)
        else:
            model = with_penalty(rule, lam, **options)
        model.fit(X, sample_weight=w)
        check_features(model, X, w)
        assert model.objective_ <= before * (1 + 1e-9)
        before = model.objective_
    assert np.all(objectives[1] <= objectives[0] * (1 + 1e-9))
    assert np.all(objectives[2] <= objectives[1] * (1 + 1e-9))
    assert np.any(objectives[2] < objectives[0] * (1 - 1e-9))


@weighted_or_not
def test_stepwise_is_k_features_for_each_k(weighted):
    """From the same random numbers; it stops at the first K whose objective is higher."""
    X = planted_features("signed", 0, n=80, d=8, k=4, noise=0.3)[0]
    w = np.random.default_rng(0).gamma(1.0, size=80) if weighted else None
    lam = 0.01 * np.square(X).sum()
    rng = np.random.RandomState(5)
    fits = [KFeatures(k, random_state=rng, n_init=4).fit(X, sample_weight=w) for k in range(1, 9)]
    values = [np.square(X).sum(axis=1) @ (np.ones(80) if w is None else w)]
    values += [m.objective_ + lam * m.n_components for m in fits]
    first_worse = next(k for k in range(1, 9) if values[k] > values[k - 1])
    model = BPMeans(lam=lam, algorithm="stepwise", n_init=4, random_state=5).fit(X, sample_weight=w)
    assert 2 <= model.n_components_ == first_worse - 1
    np.testing.assert_allclose(model.objective_path_, values[:first_worse], rtol=1e-12)
    assert np.array_equal(model.assignments_, fits[first_worse - 2].assignments_)
    assert np.array_equal(model.components_, fits[first_worse - 2].components_)
    assert model.n_iter_ == fits[first_worse - 2].n_iter_
    check_features(model, X, w)
    capped = BPMeans(lam=lam, algorithm="stepwise", max_features=2, n_init=4, random_state=5)
    assert np.array_equal(capped.fit(X, sample_weight=w).components_, fits[1].components_)


@seeds(20)
def test_default_penalty(seed):
    """lam is farthest-first of the rows that have weight, for a guess, times their mean weight."""
    p = feature_problem(seed) if seed % 2 else tied_feature_problem(seed)
    for k in (1, 3, len(p.X)):
        if k > len(p.X):
            continue
        sweep = FeatureSweep(p.X, None, "coordinate", 0.0, k, 1, 0.0, 0, 1 + seed % 3, None)
        expected = twins.penalty.farthest_first_features(p.doubles, k)
        energy = np.square(p.doubles).sum()
        np.testing.assert_allclose(sweep.farthest_first(), expected, rtol=1e-9, atol=1e-14 * energy)
    weights = np.arange(len(p.X)) % 3.0
    model = BPMeans(lam="farthest-first", n_components=2, n_init=1, random_state=0)
    model.fit(p.X, sample_weight=weights)
    expected = twins.penalty.farthest_first_features(p.doubles[weights > 0], 2)
    expected *= weights[weights > 0].mean()
    np.testing.assert_allclose(model.lam_, expected, rtol=1e-9)
    check_features(model, p.X, weights)


@each_rule
def test_tolerance(rule):
    """Stops when a sweep gains at most tol of the first value; that is no failure."""
    X = planted_features("signed", 1, n=200 if rule not in COLLAPSED else 40, d=6, k=5, noise=1.0)[
        0
    ]
    lam, Z = 0.01 * np.square(X).sum(), np.random.default_rng(0).integers(0, 2, size=(len(X), 5))
    options = {"init": Z, "tol": 1e-2}
    if rule in FIXED:
        model = KFeatures(5, assign=rule, **options)
        twin = twins.features.k_features(X, Z, exact=rule == "exact", tol=1e-2)
    else:
        model = with_penalty(rule, lam, **options)
        twin = twins.features.bp_means(X, lam, Z, collapsed=COLLAPSED.get(rule, ""), tol=1e-2)
    assert not fit(model, X)
    assert model.n_iter_ == twin.n_iter
    np.testing.assert_allclose(model.objective_path_, twin.path, rtol=1e-9)
    assert not fit(model.set_params(tol=0.0), X)
    assert model.n_iter_ > twin.n_iter


# The largest row moves on after each sweep, and the error of another row falls: each sweep opens a
# feature, removes one and lowers the objective. Not packed, so that X is read in every sweep.
CHANGING = """
import sys
import numpy as np
from smallvar import BPMeans, progress_callback
X = np.zeros((2**18, 9))
X[1, 0], X[0, 1] = 2.0, 1.0
def change(event):
    at = event.number % (len(X) - 1)
    X[at, 0], X[at + 1, 0], X[0, 1] = 0.0, 2.0, 0.999**event.number
model = BPMeans(lam=2.0, algorithm=sys.argv[1], init=np.zeros((len(X), 0)), max_iter=20)
with progress_callback(change):
    model.fit(X)
print(model.n_iter_, np.diff(model.objective_path_[:-1]).max())
"""


@sweep_and_collapsed
def test_rows_that_change_during_the_fit(algorithm):
    """It ends: of the sweeps that open features, so many are let off as there are, and max_iter."""
    command = [sys.executable, "-W", "ignore", "-c", CHANGING, algorithm]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    n_iter, largest_rise = done.stdout.split()
    assert int(n_iter) == 20 + 20 + 1 and float(largest_rise) < 0


@pytest.mark.parametrize("how", ["one", "column", "all"])
def test_nan_that_nobody_looks_for_is_refused(how):
    X = planted_features("signed", 0, n=60, d=5, k=2)[0]
    good = KFeatures(2, random_state=0).fit(X)
    X[{"one": (3, 2), "column": (slice(None), 1), "all": ()}[how]] = np.nan
    models = [KFeatures(2), KFeatures("auto"), BPMeans(lam="auto"), BPMeans(lam="farthest-first")]
    models += [BPMeans(lam=1.0, algorithm=name) for name in ("sweep", "collapsed", "stepwise")]
    calls = [model.fit for model in models] + [feature_path, good.transform, good.score]
    with sklearn.config_context(assume_finite=True):
        for call in calls:
            with pytest.raises(ValueError, match="X must be finite, and must not change"):
                call(X)


@pytest.mark.parametrize("init", ["alternate", "mean", "data"])
def test_seeding(init):
    """The numbers of random_state seed the starts, whose modes `init` tells."""
    X = planted_features("overlapping", 3, n=50, d=6, k=3)[0]
    lam = 0.01 * np.square(X).sum()
    states = np.random.RandomState(7).randint(2**63 - 1, size=5, dtype=np.int64)
    modes = {"mean": [True] * 5, "data": [False] * 5, "alternate": [True, False] * 3}[init]
    values = []
    for state, mean in zip(states.tolist(), modes, strict=False):
        random = twins.features.uniforms(state)
        Z, A = twins.features.seed_features(X, random, lam=lam, cap=50, mean=mean)
        values.append(twins.features.bp_means(X, lam, Z, A, max_features=50))
    best = min(values, key=lambda twin: twin.objective)
    model = BPMeans(lam=lam, init=init, n_init=5, n_swaps=0, random_state=7).fit(X)
    np.testing.assert_allclose(model.objective_path_, best.path, rtol=1e-9)
    assert np.array_equal(model.assignments_, best.Z)


# feature_path -------------------------------------------------------------------------------


@each_assignment
@seeds(8)
def test_feature_path(seed, assign):
    """Errors as of KFeatures or lower, never rising; for every lam the K of the objective."""
    p = feature_problem(seed, 40) if seed % 2 else tied_feature_problem(seed, 20)
    weights = np.arange(len(p.X)) % 3.0 if seed % 3 == 0 else None
    w = np.ones(len(p.X)) if weights is None else weights
    options = {"assign": assign, "n_init": 4}
    path = feature_path(p.X, 6, sample_weight=weights, random_state=1, **options)
    k_max = min(6, np.count_nonzero(w))
    assert path.n_components.tolist() == list(range(k_max + 1))
    energy = w @ np.square(p.doubles).sum(axis=1)
    np.testing.assert_allclose(path.error[0], energy, rtol=1e-12)
    assert np.all(np.diff(path.error) <= 1e-14 * energy)
    rng = np.random.RandomState(1)
    for k in range(1, k_max + 1):
        model = KFeatures(k, random_state=rng, **options).fit(p.X, sample_weight=weights)
        assert path.error[k] <= model.objective_ * (1 + 1e-9) + 1e-14 * energy
        rng.randint(2**63 - 1, size=1, dtype=np.int64)  # of the start from K - 1
    check_hull(path)


def check_hull(path):
    """lam_low and lam_high against the objective over a grid of lam."""
    error, low, high = path.error, path.lam_low, path.lam_high
    assert np.array_equal(np.isnan(low), np.isnan(high))
    best = np.flatnonzero(~np.isnan(low))
    assert best[0] == 0 and high[0] == np.inf
    assert low[best[-1]] == 0
    assert np.array_equal(high[best[1:]], low[best[:-1]])
    assert np.all(high[best] > low[best])
    for lam in np.append(np.geomspace(1e-6, 2, 200) * max(error[0], 1e-300), low[best[:-1]]):
        if lam <= 0:
            continue
        values = error + lam * path.n_components
        inside = [k for k in best if low[k] <= lam <= high[k]]
        assert inside
        for k in inside:
            assert values[k] <= values.min() * (1 + 1e-12)
        for k in set(path.n_components) - set(best):
            assert values[k] >= values.min() * (1 - 1e-12)


def test_feature_path_by_hand():
    """Ten units, six of them from the first feature; lines of slope -lam touch the errors."""
    from smallvar._selection.envelope import envelope

    low, high = envelope(range(4), [10.0, 4, 3, 0])
    assert low.tolist()[:2] == [6, 2] and high.tolist()[:2] == [np.inf, 6]
    assert low[2] > high[2]  # 3 + 2 lam is above 4 + lam or 0 + 3 lam
    assert (low[3], high[3]) == (0, 2)
    low, high = envelope(range(4), [8.0, 4, 0, 0])  # three points on a line, then a flat
    assert low[1] == high[1] and low[3] == high[3] == 0
    assert (low[2], high[2], low[0]) == (0, 4, 4)
    low, high = envelope([2, 5], [1.0, 7.0], least=-np.inf)  # an error that rises with K
    assert low.tolist() == [-2, -np.inf] and high.tolist() == [np.inf, -2]


def test_feature_path_of_data_without_square():
    path = feature_path(np.zeros((5, 2)), 3, random_state=0)
    assert path.error.tolist() == [0, 0, 0, 0]
    assert path.lam_low[0] == 0 and path.lam_high[0] == np.inf
    assert np.isnan(path.lam_low[1:]).all()


# Methods ------------------------------------------------------------------------------------


@each_assignment
@seeds(10)
def test_transform_equals_twin(seed, assign):
    p = feature_problem(seed)
    model = KFeatures(p.n_components, assign=assign, random_state=0)
    model.fit(p.X, sample_weight=p.weights)
    new = p.X[::-1] * np.asarray(0.9, dtype=p.X.dtype)
    Z = model.transform(new)
    assert Z.dtype == np.int32
    twin = twins.features.encode(new, model.components_, exact=True)
    if np.linalg.matrix_rank(model.assignments_) == p.n_components:
        assert np.array_equal(Z, twin)
    back = model.inverse_transform(Z)
    assert np.array_equal(back, Z @ model.components_)
    error = np.square(new - back).sum(axis=1)
    expected = np.square(new - twin @ model.components_).sum(axis=1)
    np.testing.assert_allclose(error, expected, rtol=1e-9, atol=1e-12 * error.max())
    np.testing.assert_allclose(model.score(new), -error.sum(), rtol=1e-9)
    np.testing.assert_allclose(model.score(new, sample_weight=p.w), -(p.w @ error), rtol=1e-9)
    other_model = BPMeans(lam=p.lam, max_features=6, random_state=0).fit(p.X)
    A, Z = other_model.components_, other_model.transform(new)
    twin = twins.features.encode(new, A, exact=True)
    error, expected = (np.square(new - bits @ A).sum(axis=1) for bits in (Z, twin))
    np.testing.assert_allclose(error, expected, rtol=1e-9, atol=1e-12 * error.max())
    expected = -(error.sum() + p.lam * other_model.n_components_)
    np.testing.assert_allclose(other_model.score(new), expected, rtol=1e-9)


@seeds(20)
def test_search_finds_the_best_row(seed):
    """Of all 2^K rows, also where features depend on each other or outnumber the columns."""
    rng = np.random.default_rng(seed)
    k, d, n = rng.integers(1, 10), rng.integers(1, 8), rng.integers(1, 70)
    A = rng.standard_normal((k, d))
    if seed % 4 == 0:
        A[k // 2] = A[0]
    if seed % 5 == 0:
        A[-1] = 0
    X = rng.integers(2, size=(n, k)) @ A + 0.3 * rng.standard_normal((n, d))
    X = X.astype(np.float32) if seed % 2 else np.asfortranarray(X)
    weight = rng.random(n) + 0.5 if seed % 3 == 0 else None
    for n_threads in (1, 3):
        sweep = FeatureSweep(X, weight, "coordinate", 0.0, k, 1, 0.0, 0, n_threads, None)
        Z, error = sweep.encode(A)
        best = np.square(X - twins.features.encode(X, A, exact=True) @ A).sum(axis=1)
        np.testing.assert_allclose(np.square(X - Z @ A).sum(axis=1), best, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(error, best @ (np.ones(n) if weight is None else weight))


@pytest.mark.parametrize(("k", "d"), [(13, 20), (16, 8)])
def test_transform_with_more_features_than_can_be_tried(k, d):
    """As good as any combination, where coordinates are not; each row as if it were alone."""
    rng = np.random.default_rng(k)
    A = np.abs(rng.standard_normal((k, d)))
    X = rng.integers(2, size=(40, k)) @ A + 0.1 * rng.standard_normal((40, d))
    model = KFeatures(k, n_init=1, n_swaps=0, random_state=0).fit(X)
    model.components_ = A
    Z = model.transform(X)
    error = np.square(X - Z @ A).sum(axis=1)
    rows = np.array(list(product((0, 1), repeat=k)))
    G, c = A @ A.T, X @ A.T
    quadratic = ((rows @ G) * rows).sum(axis=1)
    best = np.array([(quadratic - 2 * rows @ one).min() for one in c]) + np.square(X).sum(axis=1)
    np.testing.assert_allclose(error, best, rtol=1e-6)
    coordinates = np.square(X - twins.features.encode(X, A) @ A).sum(axis=1)
    assert coordinates.sum() > 1.05 * best.sum()
    assert np.array_equal(Z, np.vstack([model.transform(X[i : i + 1]) for i in range(40)]))
    model.components_ = np.zeros((k, d))
    assert not model.transform(X).any()


# The number of features ---------------------------------------------------------------------


@weighted_or_not
def test_criterion_equals_twin(weighted):
    X = planted_rows(3, 90, 7, 4)[0]
    X[:, 2] = 0
    X[40:45] = X[:5]
    weight = np.arange(90) % 3 + 1.0 if weighted else None
    options = {"n_init": 3, "n_swaps": 5}
    path = feature_path(X, 6, sample_weight=weight, random_state=0, **options)
    rng, seen = np.random.RandomState(0), 0
    for k in range(7):
        if k == 0:
            Z = np.zeros((90, 0))
        else:
            model = KFeatures(k, random_state=rng, **options).fit(X, sample_weight=weight)
            rng.randint(2**63 - 1, size=1, dtype=np.int64)
            if model.objective_ != path.error[k]:
                continue  # the start from k - 1 was better
            Z = model.assignments_
        expected = twins.features.description_length(X, Z, path.error[k], weight)
        np.testing.assert_allclose(path.criterion[k], expected, rtol=1e-9, atol=1e-9)
        seen += 1
    assert seen > 3
    assert path.best == np.argmin(path.criterion)
    k = path.best
    assert path.lam == pytest.approx(np.sqrt(path.lam_low[k] * path.lam_high[k]))


@pytest.mark.parametrize("size", [5e-324, 1e-170, 1e-17])
def test_columns_of_a_trifle_do_not_count(size):
    """Told nothing by a column of dust, the criterion is that of the others."""
    X = planted_rows(1, 100, 5, 3)[0]
    dust = size * np.random.default_rng(0).integers(-1, 2, (100, 4))
    plain = feature_path(X, 5, random_state=0)
    path = feature_path(np.hstack([X, dust]), 5, random_state=0)
    np.testing.assert_allclose(path.criterion, plain.criterion, rtol=1e-6)
    assert path.best == plain.best


def planted_rows(seed, n, d, k, noise=0.5):
    """Rows that have each of k features at random, who has which, and the features."""
    rng = np.random.default_rng(seed)
    A, Z = 2 * rng.standard_normal((k, d)), rng.integers(2, size=(n, k))
    return Z @ A + noise * rng.standard_normal((n, d)), Z, A


@pytest.mark.parametrize("k", [0, 1, 3, 5])
def test_auto_finds_planted_features(k):
    X, truth, A = planted_rows(k, 150, 12, k)
    model = BPMeans(lam="auto", random_state=0).fit(X)
    assert model.n_components_ == model.path_.best == k
    assert model.lam_ == model.path_.lam > 0
    fixed = KFeatures("auto", random_state=0).fit(X)
    assert fixed.n_components_ == fixed.path_.best == k
    assert fixed.transform(X).shape == model.transform(X).shape == (150, k)
    exact = KFeatures("auto", assign="exact", random_state=0).fit(X)
    assert exact.n_components_ == k
    for single in (model, fixed, exact):
        assert single.reconstruction_err_**2 <= np.square(X - truth @ A).sum() * (1 + 1e-9)
        np.testing.assert_allclose(
            single.reconstruction_err_**2,
            np.square(X - single.assignments_ @ single.components_).sum(),
        )


def test_auto_of_few_weights():
    X = planted_rows(1, 120, 8, 3)[0]
    reference = BPMeans(lam="auto", random_state=0).fit(X)
    weight = np.append(np.full(120, 4.0), np.zeros(5))
    other_model = BPMeans(lam="auto", random_state=0).fit(
        np.vstack([X, 100 + X[:5]]), sample_weight=weight
    )
    assert other_model.n_components_ == 3
    np.testing.assert_allclose(other_model.lam_, 4 * reference.lam_, rtol=1e-6)
    assert other_model.assignments_.shape == (125, 3)


def test_auto_looks_at_a_sample_of_many_rows():
    X, truth, A = planted_rows(2, 20_000, 12, 4)
    model = BPMeans(lam="auto", n_init=3, random_state=0).fit(X)
    assert model.n_components_ == 4
    assert model.objective_ <= np.square(X - truth @ A).sum() + 4 * model.lam_
    np.testing.assert_allclose(model.path_.error[4], model.reconstruction_err_**2, rtol=0.1)


@each_algorithm
def test_auto_with_each_algorithm(algorithm):
    X = planted_rows(4, 80, 8, 3)[0]
    options = {"algorithm": algorithm, "random_state": 0}
    model = BPMeans(lam="auto", max_features=5, **options).fit(X)
    assert model.n_components_ == 3
    capped = BPMeans(lam="auto", max_features=2, **options).fit(X)
    assert capped.n_components_ <= 2 and capped.path_.n_components[-1] == 2
    given = np.eye(80, 2)
    if algorithm != "stepwise":
        own = BPMeans(lam="auto", init=given, **options).fit(X)
        assert own.lam_ == pytest.approx(BPMeans(lam="auto", **options).fit(X).lam_)
    model.set_params(lam=50.0).fit(X)
    assert not hasattr(model, "path_")


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_auto_on_few_rows(n):
    for X in (np.zeros((n, 2)), np.ones((n, 2)), np.arange(2.0 * n).reshape(n, 2)):
        for model in (BPMeans(lam="auto", random_state=0), KFeatures("auto", random_state=0)):
            model.fit(X)
            assert model.n_components_ <= max(1, n // 3)
            assert np.isfinite(model.objective_)
            assert model.transform(X).shape == (n, model.n_components_)


def test_swaps_by_default():
    """Twenty after each start, fewer on large data, none after a start of the user's."""
    X = planted_rows(0, 60, 6, 4)[0]
    for model in (BPMeans(lam=60.0, random_state=0), KFeatures(4, random_state=0)):
        objective = model.fit(X).objective_
        assert objective == model.set_params(n_swaps=20).fit(X).objective_
        model.set_params(n_swaps="auto")
        assert FeatureStarts(model, np.empty((10**6, 10)), None, 1).swaps() == 2
        init = np.eye(60, 4)
        given = model.set_params(init=init).fit(X).components_
        assert np.array_equal(given, model.set_params(n_swaps=0).fit(X).components_)


def needed(objectives, enough):
    """How many starts there are until so many have found the lowest objective."""
    for m in range(1, len(objectives) + 1):
        lowest = min(objectives[:m])
        if sum(one <= lowest * (1 + 1e-9) for one in objectives[:m]) >= enough:
            return m
    return len(objectives)


@each_rule
@seeds(20)
def test_starts_end_once_enough_agree(rule, seed):
    """For any number of threads, though those that run ahead may find what is lower."""
    p = feature_problem(seed, 40)
    states = [p.state + i for i in range(12)]
    every = run_sweep(p, rule, states)
    assert not every.agreed
    for enough in (1, 2, 3):
        m = needed(every.objectives.tolist(), enough)
        best = run_sweep(p, rule, states[:m])
        for n_threads in (1, 2, 3):
            sweep = run_sweep(p, rule, states, n_threads=n_threads, enough=enough)
            assert sweep.objectives.tolist() == every.objectives[:m].tolist()
            assert sweep.objective == best.objective == sweep.objectives.min()
            assert np.array_equal(sweep.assignments(), best.assignments())
            assert np.array_equal(sweep.components(), best.components())
            assert sweep.path().tolist() == best.path().tolist()
            assert sweep.agreed or m == 12
    low = run_sweep(p, rule, states, enough=2, objectives_before=[every.objectives[0]])
    assert len(low.objectives) == needed([every.objectives[0], *every.objectives], 2) - 1 == 1


def test_starts_that_later_ones_beat_are_run_again():
    """Three threads have run what is lower before it turns out that the first start is enough."""
    p = feature_problem(4, 40)
    states = [p.state + i for i in range(30)]
    objectives = run_sweep(p, "coordinate", states).objectives
    worst = int(objectives.argmax())
    states = [states[worst], *states]
    for _ in range(20):
        sweep = run_sweep(p, "coordinate", states, n_threads=3, enough=1)
        assert sweep.objectives.tolist() == [objectives[worst]] == [sweep.objective]


def test_starts_by_default():
    """At most ten, and three that agree are enough; a number of starts is that number."""
    easy, hard = planted_rows(0, 60, 6, 2)[0], planted_rows(3, 120, 6, 6)[0]
    counts = []
    for X, k in ((easy, 2), (hard, 6)):
        starts = FeatureStarts(KFeatures(k, n_init=10), X, None, 1)
        sweep = starts.run(starts.sweep("coordinate", 0.0, k, 20), np.random.RandomState(0))
        assert len(sweep.objectives) == 10
        counts.append(needed(sweep.objectives.tolist(), 3))
        auto = KFeatures(k, random_state=0).fit(X)
        same = KFeatures(k, n_init=counts[-1], random_state=0).fit(X)
        every = KFeatures(k, n_init=10, random_state=0).fit(X)
        # of as many numbers drawn, the first are the same
        assert auto.objective_ == same.objective_ >= every.objective_
    assert counts[0] < 10


def test_path_completes_the_best_number():
    """No random start is left for the number chosen and the one before it."""
    X = planted_rows(5, 200, 10, 5)[0]
    model = KFeatures("auto")
    steps = Steps(FeatureStarts(model, X, None, 1), 8, np.random.RandomState(0))
    for _ in range(8):
        steps.go_on(few=True)
    assert any(len(states) for states, _, _ in steps.left)
    errors = list(steps.error)
    steps.complete_best()
    assert steps.best == 5
    assert len(steps.left[4][0]) == len(steps.left[5][0]) == 0
    assert all(after <= before for after, before in zip(steps.error, errors, strict=True))
    model.set_params(n_init=10)
    full = Steps(FeatureStarts(model, X, None, 1), 8, np.random.RandomState(0))
    for _ in range(5):
        full.go_on(few=False)
    assert all(len(states) == 0 for states, _, _ in full.left)
    assert steps.error[5] == pytest.approx(full.error[5], rel=1e-9)


@each_rule
def test_rows_without_weight_take_no_part(rule):
    """Same as without them; their rows of Z are those of transform."""
    p = replace(feature_problem(7, 40), weights=None)
    w = np.arange(len(p.X)) % 3.0
    used = w > 0
    kept = replace(p, X=p.X[used])
    model = estimator(p, rule, random_state=0).fit(p.X, sample_weight=w)
    small = estimator(kept, rule, random_state=0).fit(p.X[used], sample_weight=w[used])
    assert np.array_equal(model.components_, small.components_)
    assert np.array_equal(model.assignments_[used], small.assignments_)
    assert np.array_equal(model.objective_path_, small.objective_path_)
    assert np.array_equal(model.assignments_[~used], small.transform(p.X[~used]))
    given = estimator(p, rule, init=p.Z).fit(p.X, sample_weight=w)
    small = estimator(kept, rule, init=p.Z[used]).fit(p.X[used], sample_weight=w[used])
    assert np.array_equal(given.components_, small.components_)


# Planted features ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_planted_features_are_found(kind, noise):
    """With enough starts: more than 99% of Z, and an objective no higher than that of the truth."""
    X, Z, _ = planted_features(kind, 0, n=200, noise=noise)

    def error(Z):
        return twins.features.feature_error(X, Z, twins.features.least_squares(X, Z, w), w)

    w = np.ones(len(X))
    best = error(Z)
    lam = 0.2 * (min(error(np.delete(Z, k, axis=1)) for k in range(5)) - best)
    options = {"n_swaps": 40, "random_state": 0}
    models = [KFeatures(5, assign=assign, n_init=50, **options) for assign in FIXED]
    models.append(BPMeans(lam=lam, n_init=100, **options))
    if noise:
        models.append(BPMeans(lam=lam, n_init=20, algorithm="collapsed", **options))
    for model in models:
        model.fit(X)
        assert model.n_components_ == 5
        assert same_columns(Z, model.assignments_, complement=kind == "shared") > 0.99
        truth = best + 5 * getattr(model, "lam_", 0.0)
        slack = 0.02 if getattr(model, "algorithm", "") == "collapsed" else 1e-9
        assert model.objective_ <= truth * (1 + slack) + 1e-9


@pytest.mark.parametrize("shape", [(70_000, 6), (70_000, 40), (200, 12_000)])
@pytest.mark.parametrize("rule", ["sweep", "coordinate", "exact"])
def test_several_rounds_and_data_that_are_not_packed(shape, rule):
    """More rows than one round has, more values than are held as tiles: planted, one bit off."""
    n, d = shape
    X, Z, _ = planted_features("signed", 0, n=n, d=d, k=3, noise=0.01)
    start = Z.copy()
    start[:: max(n // 500, 2), 0] ^= 1
    for data in (np.asfortranarray(X), X.astype(np.float32)):
        if rule == "sweep":
            model = BPMeans(lam=0.1 * n * d / 100, init=start, n_threads=2).fit(data)
        else:
            model = KFeatures(3, init=start, assign=rule, n_threads=2).fit(data)
        assert np.array_equal(model.assignments_, Z)
        error = twins.features.feature_error(data, Z, model.components_, np.ones(n))
        np.testing.assert_allclose(model.reconstruction_err_**2, error, rtol=1e-6)
        assert np.array_equal(model.transform(data), Z)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 63, 64, 65, 129])
def test_many_features(n):
    """Room for features grows from 16 on; every row that is far from all others opens one.

    Whole rows have many others too, the best without the one of their own: the condition number
    of Z is 5e4 for 129 rows, 130 bit by bit, and its square is that of the least squares.
    """
    X = np.diag(np.arange(1.0, n + 1))
    for rule in ("sweep", *COLLAPSED):
        model = with_penalty(rule, 0.5, init=np.zeros((n, 0))).fit(X)
        assert model.n_components_ == n
        exact = 1e-9 if rule == "collapsed" else 1e-12
        np.testing.assert_allclose(model.assignments_ @ model.components_, X, atol=exact)
        np.testing.assert_allclose(model.objective_, 0.5 * n)
        if rule == "sweep":
            assert np.array_equal(model.assignments_, np.eye(n))


@seeds(4)
def test_swaps_far_from_a_gain_are_given_up(seed):
    """Where 20 sweeps like the last would not do; and what was found before is kept."""
    rng = np.random.default_rng(seed)
    X = (rng.random((400, 6)) < 0.4) @ rng.normal(size=(6, 12)) + 0.3 * rng.normal(size=(400, 12))
    events = []
    with progress_callback(events.append):
        model = KFeatures(6, n_init=1, n_swaps=15, random_state=seed, n_threads=1).fit(X)
    kept, last, ends, given_up = np.inf, np.inf, 0, 0
    for event in events:
        objective, limit = event.objective, kept * (1.0 - 1e-12)
        far = limit < objective < np.inf and objective - limit > 20.0 * (last - objective)
        given_up += far
        last = objective
        if far or ", 0 rows changed" in event.message:  # the start, then each swap, ends
            kept, last, ends = min(kept, objective), np.inf, ends + 1
    assert ends == 1 + 15
    assert given_up > 0
    np.testing.assert_allclose(model.objective_, kept, rtol=1e-9)
    assert (np.diff(model.objective_path_) <= 0).all()
