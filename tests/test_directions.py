"""Principal components of rows, and long directions of a covariance: equal to those by the rule."""

import time
import tracemalloc

import numpy as np
import pytest
import scipy
import twins.columns
import twins.path
from helpers import seeds
from problems import blobs
from scipy.stats import yeojohnson_llf, yeojohnson_normmax
from sklearn.metrics import adjusted_rand_score

from smallvar import DPMeans, cluster_path
from smallvar._core.frame import RowsFrame
from smallvar._selection import sample as sample_module
from smallvar._selection.columns import fit_powers, recorded
from smallvar._selection.components import (
    LEADING,
    PARAMETER_PRICE,
    ZERO_VARIANCE,
    Components,
    find_long,
)
from smallvar._selection.descent import descent_by_squares

WAIT = 3.0  # seconds in which Ctrl-C must work: one, and two for a machine that is busy


def best_by_all(e, d, u, most):
    """The number of long directions by all eigenvalues, falling, and the mean of the others."""
    best = np.inf, 0, None
    for q in range(most + 1):
        rest = e[q:].sum() / (d - q)
        if rest > ZERO_VARIANCE * e[0]:
            cost = u * (np.log(e[:q]).sum() + (d - q) * np.log(rest))
            cost += PARAMETER_PRICE * np.log(u) * (d * q - q * (q - 1) / 2)
            if cost < best[0]:
                best = cost, q, rest
    return best[1:]


def check_directions(found, S, d, u, most):
    e, U = np.linalg.eigh(S)
    e, U = np.append(e[::-1].clip(0.0), np.zeros(max(0, d - len(S))))[:d], U[:, ::-1]
    q, rest = best_by_all(e, d, u, most)
    assert (found is None) == (q == 0)
    if q == 0:
        return
    np.testing.assert_allclose(found.variances, e[:q], rtol=1e-11)
    np.testing.assert_allclose(found.rest, rest, rtol=1e-11)
    U = U[:, :q]
    np.testing.assert_allclose(found.vectors @ found.vectors.T, U @ U.T, atol=1e-6)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(q), atol=1e-12)


def covariance(rng, d, kind, u):
    """Of noise, or of values on both sides of what a direction must have to be worth its price."""
    noise = rng.normal(size=(u, d)) if kind != "flat" else None
    S = np.eye(d) if noise is None else noise.T @ noise / u
    if kind == "long":
        F = rng.normal(size=(d, int(rng.integers(1, 6)))) * rng.uniform(0.1, 3.0)
        S += F @ F.T
    if kind in ("flat", "near"):
        U = np.linalg.qr(rng.normal(size=(d, 3)))[0]
        y = np.sqrt(4.0 * d * np.log(u) / u)
        S += (U * y * rng.uniform(0.7, 1.6, size=3)) @ U.T
    return S if kind != "decay" else S * np.outer(*2 * (np.arange(1.0, d + 1) ** -0.5,))


@pytest.mark.parametrize("kind", ["noise", "long", "flat", "near", "decay"])
@seeds(12)
def test_long_directions_are_those_of_all_eigenpairs(kind, seed):
    rng = np.random.default_rng(seed)
    d, u = int(rng.integers(2, 120)), int(rng.integers(200, 3000))
    S = covariance(rng, d, kind, u)
    for most in {1, d // 3 + 1, d - 1} - {0}:
        most = min(most, d - 1)
        check_directions(find_long(S, np.trace(S), d, u, most), S, d, u, most)


@seeds(6)
def test_directions_without_variance(seed):
    """Of a covariance in fewer columns than there are directions."""
    rng = np.random.default_rng(seed)
    u = int(rng.integers(150, 400))
    S = covariance(rng, 80, ["noise", "long", "near"][seed % 3], u)
    check_directions(find_long(S, np.trace(S), 500, u, u // 3), S, 500, u, u // 3)


@pytest.mark.parametrize("d", [270, 640])  # fewer columns than rows, and more
@seeds(2)
def test_criterion_by_leading_components_equals_twin(d, seed):
    rng = np.random.default_rng(seed)
    X, w = wide_rows(rng, 600, d, "long"), np.ones(600)
    criterion, _ = sample_module.squared_euclidean(X, None, 1)
    assert criterion.components.leading.shape == (600, LEADING)
    about = twins.path.described(X, w)
    for K in (1, 5):
        labels = np.append(np.arange(K), rng.integers(K, size=600 - K)).astype(np.int32)
        V, _, error = criterion(criterion.relabeled(labels, K))
        expected, _ = twins.path.path_criterion(X, w, labels, about)
        np.testing.assert_allclose(V, expected, rtol=1e-5)
        residuals = X - np.array([X[labels == k].mean(axis=0) for k in range(K)])[labels]
        np.testing.assert_allclose(error, np.square(residuals).sum(), rtol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e25])
@pytest.mark.parametrize("d", [60, 640])
def test_squares_by_many_directions(d, scale):
    """Those by the inverse of the covariance that has these directions."""
    rng = np.random.default_rng(0)
    X = blobs(rng, 600, d, 3, spread=0.2) + rng.normal(size=(600, 50)) @ rng.normal(size=(50, d))
    criterion, _ = sample_module.squared_euclidean(X * scale, None, 1)
    components = criterion.components
    labels = np.append(np.arange(5), rng.integers(5, size=595)).astype(np.int32)
    sweep = criterion.relabeled(labels, 5)
    squares, centers = sweep.residuals(), components.centers(sweep)
    long = find_long(components.covariance(sweep, centers), squares.mean(), d, 600, d - 1)
    assert len(long.variances) > 45
    U = components.basis[:, : len(long.vectors)] @ long.vectors
    inverse = np.eye(d) / long.rest + (U * (1.0 / long.variances - 1.0 / long.rest)) @ U.T
    R = X * scale - np.array([X[labels == k].mean(axis=0) * scale for k in range(5)])[labels]
    found = components.squares_by(long, labels, centers, squares)
    np.testing.assert_allclose(found, ((R @ inverse) * R).sum(axis=1), rtol=1e-8)


@pytest.mark.parametrize("rank", [1, 2])
def test_rows_in_few_directions_of_many_columns(rank):
    rng = np.random.default_rng(0)
    X = blobs(rng, 3000, rank, 6, spread=0.02) @ rng.normal(size=(rank, 30))
    path = cluster_path(X, random_state=0, n_threads=1)
    assert np.isfinite(path.criterion[:3]).all()
    assert path.best == path.ranking[0]


@seeds(3)
def test_sweeps_in_the_space_of_centers(seed):
    """Labels that are taken from outside move the centers to the means of their rows."""
    rng = np.random.default_rng(seed)
    X = blobs(rng, 3000, 400, 6, spread=0.3)
    descent = descent_by_squares(RowsFrame(X, None, 1))
    descent.start(X[:12])
    descent.run_lloyd(1)
    descent.project()
    assert (descent.projected is None) == (3000 * descent.sweep.k * 400 <= 1 << 26)
    labels = rng.integers(descent.sweep.k, size=3000).astype(np.int32)
    before = descent.sweep.labels.copy()
    moved = descent.sweep.follow(labels)
    assert moved == (before != labels).sum()
    descent.sweep.move_centers()
    means = [X[labels == k].mean(axis=0) for k in range(descent.sweep.k)]
    np.testing.assert_allclose(descent.sweep.centers, means, atol=1e-12)
    # bounds do not hold then: the next sweep finds the nearest of these centers
    descent.sweep.assign()
    distances = ((X[:, None, :40] - np.array(means)[None, :, :40]) ** 2).sum(axis=2)
    for start in range(40, 400, 40):
        part = slice(start, start + 40)
        distances += ((X[:, None, part] - np.array(means)[None, :, part]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(descent.sweep.labels, distances.argmin(axis=1))
    with pytest.raises(ValueError, match="labels must be >= 0 and <"):
        descent.sweep.follow(np.full(3000, descent.sweep.k, dtype=np.int32))


@seeds(3)
def test_costs_of_pairs_that_are_kept(seed):
    """Mergers are those of costs that are computed again each time, as in few columns."""
    rng = np.random.default_rng(seed)
    X = np.zeros((300, 24))
    X[:, :4] = np.round(rng.standard_t(3, size=(300, 4)), 1)  # with ties
    few_columns = X[:, :4].copy()
    wide, narrow = (descent_by_squares(RowsFrame(rows, None, 1)) for rows in (X, few_columns))
    for descent in (wide, narrow):
        descent.start(descent.X)
        for count in (1, 40, 7):
            descent.merge(count)
        descent.run_lloyd(2)
        descent.merge(60)
    np.testing.assert_array_equal(wide.tree, narrow.tree)


# Rows fewer than columns ---------------------------------------------------------------------


def wide_rows(rng, n, d, kind):
    X = blobs(rng, n, d, 3, spread=0.2)
    if kind == "steps":
        X = np.round(8.0 * X)
    elif kind == "both":
        X[:, ::2] = np.round(8.0 * X[:, ::2])
    elif kind == "long":
        X += rng.normal(size=(n, 2)) @ rng.normal(size=(2, d))
    elif kind == "flags":
        X = np.hstack([X[:, 5:], (rng.random((n, 5)) < 0.4).astype(float)])
    elif kind == "float32":
        X = (X + 100.0).astype(np.float32)
    return X


@pytest.mark.parametrize("kind", ["numbers", "steps", "both", "long", "flags", "float32"])
@pytest.mark.parametrize("weighted", [False, True])
@seeds(3)
def test_criterion_of_wide_rows_equals_twin(kind, weighted, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 70))
    d = n + int(rng.integers(1, 200))
    X = wide_rows(rng, n, d, kind)
    w = rng.gamma(2.0, size=n) + 0.1 if weighted else np.ones(n)
    criterion, _ = sample_module.squared_euclidean(X, w if weighted else None, 1)
    X = X.astype(float)
    about = twins.path.described(X, w)
    assert (criterion.distinct, criterion.rank) == (about.u, d)
    for K in (1, 2, 3, 6):
        labels = np.append(np.arange(K), rng.integers(K, size=n - K)).astype(np.int32)
        sweep = criterion.relabeled(labels, K)
        V, metric, _ = criterion(sweep)
        expected, rounder = twins.path.path_criterion(X, w, labels, about)
        assert (metric is None) == (rounder is None)
        # of more columns, directions outside the space of the rows have the mean of their floors
        exact = d <= LEADING or not criterion.floor.any()
        np.testing.assert_allclose(V, expected, rtol=1e-5 if exact else 1e-2)
        if metric is None or not exact:
            continue
        # rows are as far apart as by the d x d matrix; what is added to all of them is free
        rows = metric.rows()
        np.testing.assert_allclose(metric(X), rows, atol=1e-6 * np.abs(rows).max())
        np.testing.assert_allclose(
            (X - metric.origin) @ metric.matrix, rows, atol=1e-6 * np.abs(rows).max()
        )
        other = X @ rounder
        apart = np.linalg.norm(rows - rows[0], axis=1)
        np.testing.assert_allclose(apart, np.linalg.norm(other - other[0], axis=1), rtol=1e-6)


def test_floors_that_are_all_different():
    """Outside the space of the rows their mean counts: V is nearly that of all columns."""
    rng = np.random.default_rng(0)
    X = np.round(8.0 * blobs(rng, 40, 900, 3, spread=0.2)) * rng.uniform(0.8, 1.2, size=900)
    criterion, _ = sample_module.squared_euclidean(X, None, 1)
    assert len(np.unique(criterion.floor)) > 800
    w, labels = np.ones(40), (np.arange(40) % 3).astype(np.int32)
    about = twins.path.described(X, w)
    value = criterion(criterion.relabeled(labels, 3))[0]
    assert value == pytest.approx(twins.path.path_criterion(X, w, labels, about)[0], rel=1e-3)


@pytest.mark.parametrize("columns", [61, 400, 2000])
def test_groups_in_wide_rows(columns):
    rng = np.random.default_rng(columns)
    truth = np.arange(60) % 3
    X = 2.0 * rng.normal(size=(3, columns))[truth] + rng.normal(size=(60, columns))
    model = DPMeans(random_state=0).fit(X)
    assert model.n_clusters_ == 3
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    # in other coordinates, all of them
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(columns, columns)))[0]
    rotated = cluster_path(X @ rotation, random_state=0)
    np.testing.assert_allclose(rotated.criterion[:20], model.path_.criterion[:20], rtol=1e-9)


def test_memory_and_interruption_of_wide_rows(interrupt):
    """No matrix of columns by columns, and Ctrl-C within a second."""
    rng = np.random.default_rng(0)
    truth = np.arange(80) % 4
    X = 2.0 * rng.normal(size=(4, 20_000))[truth] + rng.normal(size=(80, 20_000))
    tracemalloc.start()
    try:
        model = DPMeans(random_state=0).fit(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * X.nbytes
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    X = np.tile(X, (3, 2)) + rng.normal(size=(240, 40_000))
    interrupt(0.5)
    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        DPMeans(random_state=0).fit(X)
    assert time.perf_counter() - begin < 0.5 + WAIT


def test_sparse_rows_of_many_columns():
    """Refused by what the rows take, not by columns times columns."""
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(60, 6000, 0.03, format="csr", rng=rng)
    model, dense = (DPMeans(random_state=0).fit(kind) for kind in (X, X.toarray()))
    assert np.array_equal(model.labels_, dense.labels_)
    with pytest.raises(ValueError, match="behind 'auto' would hold 2920000000 bytes"):
        DPMeans().fit(scipy.sparse.csr_array((5000, 53_000)))


# Columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [12, 80, 3000])
def test_powers_are_those_of_the_greatest_likelihood(n):
    rng = np.random.default_rng(n)
    X = np.column_stack([np.exp(rng.normal(size=n) * s) for s in (0.2, 1.0, 2.0)])
    more = rng.exponential(size=n), -rng.gamma(0.3, size=n), rng.standard_t(2, size=n)
    X = np.column_stack([X, *more, rng.poisson(3.0, size=n), rng.pareto(0.5, size=n)])
    for origin in (np.median(X, axis=0), X.min(axis=0)):
        z = (X - origin) / X.std(axis=0)
        _, power, _ = fit_powers(z)
        for j in range(X.shape[1]):
            expected = yeojohnson_normmax(z[:, j])
            least = yeojohnson_llf(expected, z[:, j])
            assert yeojohnson_llf(power[j], z[:, j]) > least - 1e-9 * max(1.0, abs(least))


@seeds(4)
def test_rows_are_looked_at_by_their_values(seed):
    """Columns that are passed over, as no two values are equal, have no steps."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 300))
    X = rng.normal(size=(n, 12))
    X[:, ::3] = np.round(X[:, ::3] * 4)
    X[0, 1], X[0, 4] = X[-1, 1], X[-1, 4] * (1.0 + 1e-9)
    for weight in (None, rng.gamma(1.0, size=n), rng.integers(3, size=n) + (np.arange(n) == 0)):
        weight = None if weight is None else weight.astype(float)
        one = recorded(X, weight)
        two = twins.columns.recorded(X, np.ones(n) if weight is None else weight)
        np.testing.assert_allclose(one.variance, two.variance, rtol=1e-9)
        assert np.array_equal(one.in_steps, two.in_steps)


@seeds(4)
def test_rank(seed):
    """Of columns that follow from others there are fewer directions."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 30)) * 10.0 ** rng.uniform(-3, 3, size=30)
    frame = RowsFrame(X, None, 1)
    components = Components(frame, np.zeros(30))
    e = np.linalg.eigvalsh(np.cov(X.T))
    assert components.rank == (e > ZERO_VARIANCE * e[-1]).sum()
    more = np.hstack([X, X @ rng.normal(size=(30, 4))])
    assert Components(RowsFrame(more, None, 1), np.zeros(34)).rank <= 30
