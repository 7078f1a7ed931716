"""Evidence of a boundary between clusters: equal to its twin, invariances, known groups."""

import numpy as np
import pytest
import twins.boundary
from helpers import seeds
from scipy.optimize import approx_fprime
from sklearn.cluster import KMeans
from smallvar._sweeps.boundary import distribution, fit, valley

from smallvar._selection.boundaries import boundary_between, find_boundaries
from smallvar._selection.boundary import (
    N_BINS,
    NOTHING,
    SHARES,
    _bodies,
    _fit,
    _two_bells,
)

CLOUDS = {
    "uniform": lambda rng, shape: rng.random(shape),
    "normal": lambda rng, shape: rng.normal(size=shape),
    "t": lambda rng, shape: rng.standard_t(3, size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
    "lognormal": lambda rng, shape: rng.lognormal(sigma=0.8, size=shape),
    "whole numbers": lambda rng, shape: rng.poisson(3, size=shape).astype(float),
}

BOUNDS = {
    True: np.array([[0, 0, np.log(1.5), np.log(1.5), -8], [32, 32, np.log(64), np.log(64), 8]]),
    False: np.array([[0, 0, 0, np.log(0.6), -8], [32, *np.log([64] * 3), 8]]),
}


def evidence_between(*arguments):
    return boundary_between(*arguments).evidence


def cut(X):
    """Labels of two clusters by k-means."""
    return KMeans(2, n_init=2, random_state=0).fit_predict(X)


def cloud(name, seed, n=600, d=2):
    """One group of rows, and two clusters that cut it."""
    X = CLOUDS[name](np.random.default_rng([seed, n, d]), (n, d))
    return X, cut(X)


def pair(gap, seed, n=600, d=2, share=0.5):
    """Two normal groups, and two clusters."""
    rng = np.random.default_rng([seed, n, d])
    X = rng.normal(size=(n, d))
    X[: round(share * n), 0] += gap
    return X, cut(X)


def counts_of(seed):
    """A histogram of one of several kinds, (1, N_BINS)."""
    names = [*CLOUDS, 2.0, 3.0, 4.0]
    name = names[seed % len(names)]
    X, labels = pair(name, seed) if isinstance(name, float) else cloud(name, seed)
    return boundary_between(X, None, labels, 0, 1).counts[None]


@pytest.mark.parametrize("name", [*CLOUDS, 2.5, 3.0, 4.0])
@seeds(2)
def test_equal_to_the_twin(name, seed):
    n, d = (400, 900)[seed % 2], 1 + seed
    X, labels = pair(name, seed, n, d) if isinstance(name, float) else cloud(name, seed, n, d)
    weight = np.random.default_rng(seed).integers(1, 4, size=n) if seed == 1 else None
    repeats = np.ones(n, dtype=int) if weight is None else weight
    expected = twins.boundary.evidence(X.repeat(repeats, axis=0), labels.repeat(repeats), 0, 1)
    assert evidence_between(X, weight, labels, 0, 1) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("two_bells", [True, False])
def test_distribution_functions(two_bells):
    """By hand at the middle of a symmetric one, and against the twin."""
    p = np.array([4.0, 9.0, 0.3, 0.5, 0.4]) if two_bells else np.array([7.0, 0.9, 1.4, -0.5, 0.4])
    below = twins.boundary.bells_below if two_bells else twins.boundary.body_below
    x = np.linspace(-5.0, 25.0, 61)
    np.testing.assert_allclose(distribution(two_bells, p, x), below(p, x), atol=1e-14)
    p = np.array([3.0, 7.0, 0.5, 0.5, 0.0]) if two_bells else np.array([5.0, 0.5, 0.5, 1.0, 0.0])
    assert distribution(two_bells, p, np.array([5.0])) == pytest.approx(0.5, abs=1e-15)


@pytest.mark.parametrize("two_bells", [True, False])
@seeds(18)
def test_fits_converge_from_every_start(two_bells, seed):
    """No start ends where a derivative within the bounds could still raise the likelihood."""
    counts = counts_of(seed)
    starts = _two_bells(counts) if two_bells else _bodies(counts)
    low, high = BOUNDS[two_bells]
    fits = [fit(two_bells, counts, start[None, None], low, high) for start in starts[0]]
    parameters, likelihoods = (np.concatenate(parts)[:, 0] for parts in zip(*fits, strict=True))
    for p, value in zip(parameters, likelihoods, strict=True):
        assert fit(two_bells, counts, p[None, None], low, high)[1][0, 0] < value + 1e-9
    # of all starts, the best go on: they find what they would find alone
    assert fit(two_bells, counts, starts, low, high)[1].max() > likelihoods.max() - 0.05
    below = twins.boundary.bells_below if two_bells else twins.boundary.body_below

    def likelihood(p):
        share = np.diff([0, *below(p, np.arange(1, N_BINS)), 1])
        return (counts * np.log(np.maximum(share, 1e-12))).sum()

    for p, value in zip(parameters, likelihoods, strict=True):
        assert likelihood(p) == pytest.approx(value, abs=1e-8)
        slope = approx_fprime(p, likelihood, 1e-6)
        free = ((p > low) | (slope > 0)) & ((p < high) | (slope < 0))
        assert (np.abs(slope[free]) < 0.01).all()


@seeds(18)
def test_no_other_start_finds_a_likelier_body(seed):
    counts, rng = counts_of(seed), np.random.default_rng(seed)
    starts = np.column_stack(
        [
            rng.uniform(0, 32, 40),
            *rng.uniform(0, 4, (2, 40)),
            rng.uniform(-1, 3, 40),
            rng.normal(size=40),
        ]
    )
    assert fit(False, counts, starts[None], *BOUNDS[False])[1].max() < _fit(False, counts)[1] + 0.1


@pytest.mark.parametrize("name", [*CLOUDS, 3.0])
@pytest.mark.parametrize("d", [1, 3])
def test_invariances(name, d):
    """Units, offsets, rotations, order of rows, names of clusters, weight 2 as two rows."""
    X, labels = pair(name, 5, 200, d) if isinstance(name, float) else cloud(name, 5, 200, d)
    rng = np.random.default_rng(0)
    evidence = evidence_between(X, None, labels, 0, 1)
    assert evidence_between(X, None, labels, 1, 0) == evidence
    assert evidence_between(X, None, 9 - 4 * labels, 5, 9) == pytest.approx(evidence, abs=1e-6)
    assert evidence_between(1e9 * X, None, labels, 0, 1) == pytest.approx(evidence, abs=1e-6)
    assert evidence_between(1e-170 * X, None, labels, 0, 1) == pytest.approx(evidence, abs=1e-6)
    assert evidence_between(X + 1e3, None, labels, 0, 1) == pytest.approx(evidence, abs=1e-6)
    assert evidence_between(-X, None, labels, 0, 1) == pytest.approx(evidence, abs=1e-6)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    assert evidence_between(X @ rotation, None, labels, 0, 1) == pytest.approx(evidence, abs=1e-6)
    order = rng.permutation(200)
    shuffled = evidence_between(X[order], None, labels[order], 0, 1)
    assert shuffled == pytest.approx(evidence, abs=1e-6)
    weight = rng.integers(0, 3, size=200)
    repeated = evidence_between(np.repeat(X, weight, axis=0), None, labels.repeat(weight), 0, 1)
    weighted = evidence_between(X, weight.astype(float), labels, 0, 1)
    assert weighted == pytest.approx(repeated, abs=1e-6)


def test_more_columns_than_rows():
    """The axis in the span of the rows is that of the matrix of the columns."""
    X, labels = pair(6.0, 0, 60, 100)
    expected = twins.boundary.evidence(X, labels, 0, 1)
    assert evidence_between(X, None, labels, 0, 1) == pytest.approx(expected, abs=1e-6)
    wide = np.hstack([X, np.zeros((60, 4000))])
    assert evidence_between(wide, None, labels, 0, 1) == pytest.approx(expected, abs=1e-6)


def evidences(problem):
    """Of nine seeds, ascending."""
    problems = (problem(seed) for seed in range(9))
    return np.sort([evidence_between(X, None, labels, 0, 1) for X, labels in problems])


@pytest.mark.parametrize(("n", "d"), [(50, 64), (100, 16), (100, 256), (300, 64), (300, 256)])
def test_many_columns(n, d):
    """One group is not two because the axis leans toward the rows that it comes from."""
    single = evidences(lambda seed: cloud("normal", seed, n, d))
    assert single[4] < 0.5 and single[-1] < 4.0
    if n == 300:
        assert evidences(lambda seed: pair(6.0, seed, n, d))[4] > 4.0


def test_other_clusters_do_not_matter():
    X, labels = pair(3.0, 1)
    far = np.vstack([X, X + 50.0])
    both = np.concatenate([labels, labels + 2])
    assert evidence_between(far, None, both, 0, 1) == evidence_between(X, None, labels, 0, 1)


@pytest.mark.parametrize("d", [1, 2, 8])
def test_single_groups(d):
    """Those with flat tops are surely one; bells, heavy and one-sided tails are not two."""
    flat = evidences(lambda seed: cloud("uniform", seed, 1000, d))
    assert flat[4] < (-15.0 if d < 8 else -4.0) and flat[-1] < 1.0
    for name in ("normal", "t", "exponential", "lognormal"):
        found = evidences(lambda seed, name=name: cloud(name, seed, 1000, d))
        assert -1.0 < found[4] <= 0.0 and found[0] > -6.0 and found[-1] < 3.5


@pytest.mark.parametrize(
    ("gap", "share", "low", "high"),
    [
        (2.0, 0.5, -1.0, 1.0),
        (2.5, 0.5, 0.5, 5.0),
        (3.0, 0.5, 6.0, 14.0),
        (3.5, 0.5, 17.0, 33.0),
        (4.0, 0.5, 38.0, 60.0),
        (4.0, 0.2, 4.0, 14.0),
        (4.0, 0.1, 1.0, 6.0),
    ],
)
@pytest.mark.parametrize("d", [1, 2, 8])
def test_pairs(gap, share, low, high, d):
    found = evidences(lambda seed: pair(gap, seed, 1000, d, share))
    assert low < found[4] < high


def test_the_record():
    """Counts and curves sum to the rows; bells fit two groups, the body one."""
    X, labels = pair(4.0, 0)
    found, single = find_boundaries(X, None, labels, 2), boundary_between(X, None, labels, 0, 1)
    assert single.edges.shape == (N_BINS + 1,) and (np.diff(single.edges) > 0).all()
    for weights in (single.counts, found.bells[0], found.body[0]):
        assert weights.shape == (N_BINS,)
        assert weights.sum() == pytest.approx(600)
    likelihoods = [single.counts @ np.log(weights[0]) for weights in (found.bells, found.body)]
    assert single.evidence == pytest.approx(likelihoods[0] - likelihoods[1], abs=1e-8)
    assert found.valley > 0.4
    assert 1.0 <= single.dispersion < 2.0


def test_valley():
    """Two equal bells 4 spreads apart: in the middle 2 exp(-2), at a mode about 1 + exp(-8)."""
    assert valley(np.array([-2.0, 2.0, 0.0, 0.0, 0.0])) == pytest.approx(0.27, abs=0.001)
    assert valley(np.array([-0.99, 0.99, 0.0, 0.0, 0.0])) == 1.0  # apart by less than 2 spreads
    assert valley(np.array([-1.2, 1.2, 0.0, 0.0, 0.0])) < 0.96
    for p in ([3.0, 7.0, 0.0, 0.5, 1.0], [3.0, 9.0, -1.0, 1.5, -1.0], [9.0, 3.0, 0.2, 0.2, 2.0]):
        assert valley(np.array(p)) == pytest.approx(twins.boundary.valley(np.array(p)), abs=1e-5)


def test_nothing_can_be_said():
    """Of few distinct values, equal rows, an empty cluster."""
    X = np.arange(SHARES - 1.0).repeat(100)[:, None]
    assert boundary_between(X, None, (X[:, 0] > 2).astype(int), 0, 1) is NOTHING
    labels = np.array([0, 1]).repeat(20)
    assert boundary_between(np.ones((40, 3)), None, labels, 0, 1) is NOTHING
    assert boundary_between(labels[:, None] * np.ones(3), None, labels, 0, 1) is NOTHING
    X = np.random.default_rng(0).normal(size=(40, 2))
    assert boundary_between(X, None, labels, 0, 5) is NOTHING
    assert boundary_between(X, np.array([1.0, 0.0]).repeat(20), labels, 0, 1) is NOTHING
    assert boundary_between(np.vstack([X, X]), None, labels.repeat(2) * 0, 0, 1) is NOTHING


@seeds(10)
def test_a_cluster_of_one_row(seed):
    """However far it is, one row is no bell that a single row could not make by chance."""
    X = np.random.default_rng(seed).normal(size=(300, 2))
    for distance in (10.0, 1e6):
        X[0] = distance, 0.0
        labels = (np.arange(300) == 0).astype(int)
        assert abs(evidence_between(X, None, labels, 0, 1)) < 6.0


@pytest.mark.parametrize("levels", [7, 8, 12, 20, 40, 63])
@seeds(4)
def test_values_in_steps(levels, seed):
    """A bell recorded on a grid is one group, and so is a flat one; gaps on it are found."""
    rng = np.random.default_rng(seed)
    for X in (rng.normal(size=(2000, 1)), rng.random((2000, 1)) - 0.5):
        X = np.round(X / np.ptp(X) * levels)
        assert evidence_between(X, None, (X[:, 0] > 0.2).astype(int), 0, 1) < 6.0
    two = np.round(
        np.concatenate([rng.normal(-3, 0.7, 1000), rng.normal(3, 0.7, 1000)]) * levels / 8
    )
    assert evidence_between(two[:, None], None, (two > 0).astype(int), 0, 1) > 50.0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_have_changed_since_they_were_checked(value):
    X = np.random.default_rng(0).normal(size=(60, 3))
    labels = (X[:, 0] > 0).astype(int)
    X[7, 1] = value
    with pytest.raises(ValueError, match="^X must be finite, and must not change"):
        boundary_between(X, None, labels, 0, 1)
