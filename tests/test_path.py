"""The merge path and lam="auto": equal to the twin, to known answers; invariants, bad input."""

import copy
import inspect
import pickle
import re
import warnings
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import recorded
import scipy
import twins.columns
import twins.dpmeans
import twins.exact
import twins.path
import twins.penalty
from helpers import all_partitions, seeds
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version
from problems import PATH_FAMILIES, blobs, check_state, path_problem
from scipy.cluster import hierarchy
from sklearn import datasets
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import scale
from sklearn.utils import check_random_state
from smallvar._sweeps.residual_density import fit_residual_density

from smallvar import (
    BregmanDPMeans,
    DPMeans,
    MiniBatchDPMeans,
    MixedDPMeans,
    ShapeMeans,
    SphericalDPMeans,
    cluster_path,
    cut_path,
    feature_path,
)
from smallvar._features.feature_path import FeaturePath
from smallvar._selection import cluster_path as cluster_path_module
from smallvar._selection import descent as descent_module
from smallvar._selection import sample as sample_module
from smallvar._selection import search as search_module
from smallvar._selection.columns import PowerTransform, count_different, filled_values, rows_filled
from smallvar._selection.envelope import Path, envelope
from smallvar._selection.sample import PathProblem

ARRAYS = ("n_clusters", "inertia", "criterion", "lam_low", "lam_high", "ranking", "linkage")
# before scipy 1.15, fcluster makes fewer or more clusters of some trees than it is asked for
COUNTS = Version(scipy.__version__) >= Version("1.15")
RECORDED = recorded.read()
X_SMALL = blobs(np.random.default_rng(0), 90, 2, 3, spread=0.05)


def path_bits(path):
    """All that a path holds, as bytes."""
    centers = [path.centers(k).tobytes() for k in path.n_clusters]
    arrays = [getattr(path, name).tobytes() for name in ARRAYS]
    return [*arrays, *centers, path.best, path.lam.hex()]


def planted(k, n_each=40, d=2, seed=0, spread=0.05):
    """Round blobs at the points of a grid, 1 apart, and their labels."""
    rng = np.random.default_rng(seed)
    side = int(np.ceil(k ** (1 / d)))
    grid = np.arange(k)[:, None] // side ** np.arange(d) % side
    z = np.repeat(np.arange(k), n_each)
    return grid[z] + spread * rng.normal(size=(len(z), d)), z


# The search ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::smallvar.ScaleWarning")  # years beside flags
@pytest.mark.parametrize("family", PATH_FAMILIES)
@seeds(recorded.SEEDS)
def test_recorded_paths(family, seed):
    """The number, its confidence and all labels are what they were; and it is a path."""
    p = path_problem(family, seed, n_max=250)
    model = recorded.fit_problem(p, p.X, seed, n_threads=1 + seed % 3)
    path, X = model.path_, np.asarray(p.X, dtype=float)
    check_path(path, X, p.weights, at_all=path.n_samples == len(X))
    check_state(model, p.X, p.weights)
    assert model.lam_ == (path.lam if p.lam is None else p.lam)
    assert p.max_clusters is None or model.n_clusters_ <= p.max_clusters
    if p.lam is None:
        assert model.n_clusters_ == path.best
        # in columns of noise all centers are the same: without them it is a fit like others
        kept = np.delete(np.arange(X.shape[1]), path.noise_columns)
        rows, init = (p.X, model.cluster_centers_)
        if len(kept) < X.shape[1]:
            rows, init = (np.ascontiguousarray(A[:, kept]) for A in (p.X, init))
        again = DPMeans(lam=model.lam_, init=init, max_clusters=path.best)
        again.fit(rows, sample_weight=p.weights)
        assert np.array_equal(again.labels_, model.labels_)
    else:
        check_objective(model, p)
    if RECORDED[family][seed]:
        *numbers, labels = RECORDED[family][seed]
        best, first, second, found = recorded.outcome(path)
        expected = list(map(int, numbers))
        assert best == expected[0]
        assert np.abs(np.subtract([first, second], expected[1:])).max() <= 1
        assert labels in (recorded.UNSURE, found)


def check_objective(model, p):
    """For a given lam the best of the path, and of collapsed sweeps from it or from the fit."""
    path, cap = model.path_, np.inf if p.max_clusters is None else p.max_clusters
    allowed = path.n_clusters <= cap
    best = (path.inertia + p.lam * path.n_clusters)[allowed].min()
    rounding = 1e-9 * path.inertia[0]
    assert model.objective_ <= best + rounding
    twin = twins.dpmeans.collapsed(
        p.X, p.lam, weights=p.weights, init=model.cluster_centers_, max_clusters=p.max_clusters
    )
    assert model.objective_ <= twin.objective + rounding


# V is in float32 where clusters are long and of most rows: what is added to V for a row is off by
# 1e-7 of the longest direction's variance over the shortest's, and by 1e-5 from the bins.
# Measured: 8e-4 log(u), but 1.7e-2 log(u) where that ratio is 1e2 to 1e4 and K far from the best.
V_BOUND, V_BOUND_LONG = 2e-3, 3e-2


@pytest.mark.parametrize("far", [1.0, 1e14])
def test_rows_on_a_line_in_the_plane(far):
    """A covariance of rounding says nothing of a cluster."""
    rng = np.random.default_rng(0)
    X = np.outer(rng.integers(-3, 4, size=12), rng.normal(size=2))
    X[-1] *= far
    path = DPMeans(random_state=0).fit(X).path_
    about, evaluated = twins.path.described(X, np.ones(12)), np.isfinite(path.criterion)
    assert evaluated.sum() == min(about.cap, path.n_clusters[-1])
    V = [
        twins.path.path_criterion(X, np.ones(12), path.labels(k), about)[0]
        for k in path.n_clusters[evaluated]
    ]
    bound = V_BOUND_LONG * np.log(about.u)
    np.testing.assert_allclose(path.criterion[evaluated], V, rtol=0, atol=bound)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "more",
    [
        lambda X: X[:, :1],
        lambda X: X.sum(axis=1, keepdims=True),
        lambda X: X[:, :1] * [1 / 3, 2],
        lambda X: X,
        lambda X: np.full((len(X), 1), 7.0),
    ],
    ids=["a column twice", "sum", "multiples", "all twice", "constant"],
)
def test_columns_that_follow_from_others(more, seed):
    """They say nothing of their own; counted as columns they would make every cut look better."""
    X, truth = make_blobs(600, 4, centers=5, random_state=seed, cluster_std=0.7)
    model = DPMeans(random_state=0).fit(np.hstack([X, more(X)]))
    assert model.n_clusters_ == 5
    assert adjusted_rand_score(truth, model.labels_) > 0.99


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_shape_of_what_is_not_finite(wrong):
    """Bins are chosen by the bits of a number: what has none must not be looked up."""
    label, back = np.zeros(5, dtype=np.int32), np.zeros(1)
    squares = np.array([1.0, 2.0, wrong, 4.0, 50.0])
    assert fit_residual_density(squares, None, label, back, 5.0, 2) == (np.inf, False)


def test_shape_of_squares_below_zero():
    """By rounding; they are none."""
    label, back = np.zeros(5, dtype=np.int32), np.zeros(1)
    found = [
        fit_residual_density(np.array([1.0, 2.0, low, 4.0, 9000.0]), None, label, back, 5.0, 2)
        for low in (0.0, -0.0, -1e-9)
    ]
    assert found[0][1]
    np.testing.assert_allclose([one[0] for one in found], found[0][0], rtol=1e-9)


@pytest.mark.parametrize("family", [f for f in PATH_FAMILIES if f not in ("tiny", "lam")])
@seeds(3)
def test_criterion_equals_twin(family, seed):
    """V of any labels, by any route: given ones, of all shapes of clusters."""
    p = path_problem(family, seed, n_max=300)
    X, w, rows = twins.exact.prepare(p.X, p.weights, None)
    X = X[rows][:, np.ptp(X[rows], axis=0) > 0]
    w, weight = w[rows], None if p.weights is None else w[rows]
    for transformed in (False, True):
        volume = 0.0
        if transformed:
            transform, twin = PowerTransform(X, weight), twins.columns.Transform(X, w)
            assert transform.columns == list(twin.parts)
            if not twin.parts:
                break
            X, slope = transform(X)
            volume = slope.sum() if weight is None else w @ slope
        about = twins.path.described(X, w)
        criterion, _ = sample_module.squared_euclidean(X, weight, 1)
        assert (criterion.distinct, criterion.cap) == (about.u, about.cap)
        assert criterion.rank == about.basis.shape[1]
        np.testing.assert_allclose(criterion.floor, about.floor, rtol=1e-9)
        assert np.array_equal(criterion.few_valued, about.few_valued)
        charge = -2 * about.u * volume / w.sum()
        if transformed:
            charge += len(twin.parts) * (4 * np.log(about.u) + 0.3 * about.u)
            criterion.charge(slope, len(twin.parts))
        for K in (1, 2, 5, 12):
            if about.cap < K != 1:
                break
            centers = X[np.random.default_rng(seed).choice(len(X), K, replace=False)]
            labels = twins.exact.without_gaps(twins.exact.nearest(X, centers)[0])[0]
            check_value(criterion, X, w, labels, about, charge)


@pytest.mark.parametrize("family", ["filled", "table", "years", "plain"])
@seeds(8)
def test_values_filled_in_equal_twin(family, seed):
    p = path_problem(family, seed, n_max=300)
    w = np.ones(len(p.X)) if p.weights is None else p.weights
    found = rows_filled(p.X, filled_values(p.X, p.weights))
    assert np.array_equal(found, twins.columns.filled(p.X, w))
    assert family in ("filled", "table") or not found.any()


def check_value(criterion, X, w, labels, about, charge):
    sweep = criterion.relabeled(labels, labels.max() + 1)
    V, metric, error = criterion(sweep)
    assert error == pytest.approx(sweep.squared_error(), rel=1e-12)
    expected, rounder = twins.path.path_criterion(X, w, labels, about)
    bound = V_BOUND
    assert (metric is None) == (rounder is None)
    if metric is not None:
        variances = 1 / np.square(rounder).sum(axis=0)
        if 50 < variances.max() / variances.min() < 2e4:
            bound = V_BOUND_LONG
        # the signs of directions are free, and among those of equal length all
        np.testing.assert_allclose(
            metric.matrix @ metric.matrix.T,
            rounder @ rounder.T,
            atol=1e-6 * np.square(rounder).max(),
        )
    bound *= np.log(max(about.u, 2))
    np.testing.assert_allclose(V, expected + charge, rtol=0, atol=bound)


@seeds(8)
def test_descent_equals_twin_on_many_chunks(seed):
    """From the same centers, sweep by sweep: bounds that live through mergers are right."""
    rng = np.random.default_rng(seed)
    n, d = 2600, 1 + seed
    X = blobs(rng, n, d, 25, spread=0.3).astype(np.float32 if seed % 2 else np.float64)
    w = rng.gamma(1.0, size=n) + 0.01 if seed % 3 == 0 else None
    _, descent = sample_module.squared_euclidean(X, w, 1 + seed % 3)
    twin = twins.path.Descent(X.astype(float), np.ones(n) if w is None else w)
    centers = X[rng.choice(n, 70, replace=False)].astype(float)
    descent.start(centers)
    twin.start(centers)
    while True:
        for _ in range(6 if seed % 2 else 3):
            assert np.array_equal(descent.sweep.labels, twin.labels)
            descent.run_lloyd(1)
            twin.run_lloyd(1)
        np.testing.assert_allclose(descent.sweep.centers, twin.centers, atol=1e-12)
        if descent.sweep.k == 1:
            break
        step = max(1, descent.sweep.k // (20 if seed % 2 else 6))
        descent.merge(step)
        twin.merge(step)
    np.testing.assert_allclose(descent.tree, twin.tree, rtol=1e-7)


@seeds(6)
def test_sweeps_after_seeding_find_the_nearest_center(seed):
    p = path_problem("float32", seed, n_max=400)
    _, descent = sample_module.squared_euclidean(p.X, None, 1)
    descent.seed(len(p.X) // 4, check_random_state(seed))
    for _ in range(6):
        centers = descent.sweep.centers
        descent.sweep.assign()
        expected = twins.exact.nearest(p.X.astype(float), centers)[0]
        assert np.array_equal(descent.sweep.labels, expected)
        descent.sweep.move_centers()


# Tied data: equal rows and grids, where rounding decides between equal mergers.


@seeds(20)
def test_tied_data(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, size=(int(rng.integers(2, 200)), 1 + seed % 3)) / 2
    weights = 2.0 ** rng.integers(-2, 3, size=len(X)) if seed % 2 else None
    path = cluster_path(X, sample_weight=weights, random_state=seed)
    check_path(path, X, weights)
    u = len(np.unique(X, axis=0))
    assert path.n_clusters[-1] <= u
    assert path.best <= max(1, u // 3)
    model = DPMeans(random_state=seed).fit(X, sample_weight=weights)
    check_state(model, X, weights)
    all_apart = DPMeans(lam=1e-9, algorithm="merge", random_state=seed).fit(
        X, sample_weight=weights
    )
    assert all_apart.n_clusters_ == u
    np.testing.assert_allclose(all_apart.inertia_, 0, atol=1e-20)


def check_path(path, X, weights=None, *, at_all=True):
    """Assert what holds for every path, whatever the data, and if it was found ``at_all`` rows."""
    X = np.asarray(X, dtype=float)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    K, inertia = path.n_clusters, path.inertia
    assert K[0] == 1 and np.all(np.diff(K) > 0)
    assert np.all(np.diff(inertia) < 0)
    mean = np.average(X, axis=0, weights=w)
    total = w @ np.square(X - mean).sum(axis=1)
    if at_all:
        rounding = 1e-25 * np.square(X).sum() * w.max()
        np.testing.assert_allclose(inertia[0], total, rtol=1e-9, atol=rounding)
        check_fixed_points(path, X, weights)
    assert path.best == path.ranking[0] and sorted(path.ranking) == K.tolist()
    ranked = path.criterion[np.searchsorted(K, path.ranking[1:])]
    assert np.all(ranked[:-1] <= ranked[1:])
    assert 0 < path.lam < np.inf
    hull = np.flatnonzero(path.lam_low < path.lam_high)
    assert hull[0] == 0 and path.lam_high[0] == np.inf
    assert hull[-1] == len(K) - 1 and path.lam_low[-1] == 0
    assert np.array_equal(path.lam_high[hull[1:]], path.lam_low[hull[:-1]])
    for i in hull:
        lam = min(2 * path.lam_low[i] + 1, (path.lam_low[i] + path.lam_high[i]) / 2)
        if path.lam_low[i] < lam < path.lam_high[i]:
            assert (inertia + lam * K).argmin() == i
    i = np.searchsorted(K, path.best)
    if i in hull and len(K) > 1:
        low, high = path.lam_low[i], path.lam_high[i]
        assert low <= path.lam <= high
        if at_all:
            middle = np.sqrt(low * high) if low > 0 else high / 2
            np.testing.assert_allclose(path.lam, 2 * low if np.isinf(high) else middle, rtol=1e-9)
    centers = path.centers(path.best)
    assert centers.shape == (path.best, X.shape[1])
    assert path.labels(path.best).dtype == np.int32
    check_linkage(path)


def check_linkage(path):
    """The mergers are a hierarchy of the clusters where the descent began.

    There may be more of these than the path has: sweeps may empty some, or one more save nothing.
    """
    Z, leaves = path.linkage, len(path.linkage) + 1
    assert leaves >= path.n_clusters[-1]
    assert Z.shape == (leaves - 1, 4) and Z.dtype == np.float64
    if leaves == 1:
        return
    assert hierarchy.is_valid_linkage(Z)
    assert hierarchy.is_monotonic(Z)
    assert Z[-1, 3] == leaves
    for k in range(1, leaves + 1, max(1, leaves // 5)):
        assert len(np.unique(hierarchy.cut_tree(Z, n_clusters=k))) == k
        if COUNTS:
            found = hierarchy.fcluster(Z, k, criterion="maxclust").max()
            assert found <= k
            if 1 < k < leaves and Z[-k, 2] < Z[1 - k, 2]:
                assert found == k


# Properties ---------------------------------------------------------------------------------


@st.composite
def path_data(draw, n_max=90):
    """Continuous data, clustered or not, round or long."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, k = draw(st.integers(1, n_max)), draw(st.integers(1, 8)), draw(st.integers(1, 8))
    shape = np.diag(10.0 ** -rng.uniform(0, draw(st.sampled_from([0.0, 1.5])), size=d))
    spread = draw(st.sampled_from([0.02, 0.2, 1.0]))
    X = rng.normal(size=(k, d))[rng.integers(k, size=n)] + spread * rng.normal(size=(n, d)) @ shape
    return X * 10.0 ** draw(st.integers(-3, 3))


def assert_same_path(one, two, factor=1.0):
    """Everything equal but for a factor of squared units; V up to a constant."""
    assert np.array_equal(one.n_clusters, two.n_clusters)
    assert one.best == two.best
    for name in ("inertia", "lam_low", "lam_high"):
        np.testing.assert_allclose(getattr(two, name), factor * getattr(one, name), rtol=1e-9)
    np.testing.assert_allclose(two.lam, one.lam * (factor if one.inertia[0] else 1.0), rtol=1e-9)
    for k in one.n_clusters:
        assert np.array_equal(one.labels(k), two.labels(k))
    finite = np.isfinite(one.criterion)
    assert np.array_equal(finite, np.isfinite(two.criterion))
    shift = two.criterion[finite] - one.criterion[finite]
    np.testing.assert_allclose(shift, shift[0], rtol=1e-9, atol=1e-2)


@given(path_data(), st.booleans(), st.integers(0, 99))
def test_any_path(X, weighted, seed):
    weights = np.random.default_rng(seed).gamma(1.0, size=len(X)) if weighted else None
    path = cluster_path(X, sample_weight=weights, random_state=seed)
    check_path(path, X, weights)


@given(path_data(), st.integers(-60, 60), st.booleans())
def test_scale(X, exponent, single):
    """A power of two changes no digit."""
    X = X.astype(np.float32 if single else np.float64)
    factor = X.dtype.type(2.0**exponent)
    one, two = (cluster_path(data, random_state=0) for data in (X, X * factor))
    assert_same_path(one, two, float(factor) ** 2)
    assert two.lam == one.lam * float(factor) ** 2 or one.inertia[0] == 0
    heights = one.linkage[:, 2], two.linkage[:, 2]
    # in the metric that makes clusters round, heights have no unit
    assert any(np.allclose(heights[1], heights[0] * by, rtol=1e-9) for by in (factor, 1.0))


@given(path_data(), st.sampled_from([-64.0, 1000.0, 2.0**20]))
def test_translation(X, offset):
    """By a round number, so that no digit is lost."""
    X = np.round(X / np.abs(X).max() * 2**20) / 2**10
    one, two = (cluster_path(data, random_state=0) for data in (X, X + offset))
    assert_same_path(one, two)


@given(path_data(), st.sampled_from([0.5, 2.0, 2.0**30]), st.booleans())
def test_scale_of_weights(X, factor, weighted):
    """Twice the weight is twice the price of a cluster."""
    weights = np.random.default_rng(0).gamma(1.0, size=len(X)) if weighted else np.ones(len(X))
    one, two = (
        cluster_path(X, sample_weight=w, random_state=0) for w in (weights, factor * weights)
    )
    assert_same_path(one, two, factor)


@given(path_data(), st.randoms(use_true_random=False))
def test_order_of_rows_from_given_centers(X, random):
    """Rows in another order: the same clusters in the descent, the same criterion."""
    X = X[:, np.ptp(X, axis=0) > 0]
    if not X.size:
        return
    order = list(range(len(X)))
    random.shuffle(order)
    one, two = descents(X[: 1 + len(X) // 2], (X, None), (X[order], None))
    for (labels, V, tree), (other, other_V, other_tree) in zip(one, two, strict=True):
        assert np.array_equal(labels[order], other)
        np.testing.assert_allclose(V, other_V, rtol=1e-9, atol=1e-2)
        np.testing.assert_allclose(tree, other_tree, rtol=1e-6)


@given(path_data(), st.integers(0, 99))
def test_weights_are_repeated_rows_from_given_centers(X, seed):
    """Of columns of numbers: of columns in steps all rows count, so that two weigh more than one.

    Where most rows are repeated, or many are the same one, columns are no columns of numbers.
    """
    X = X[:, np.ptp(X, axis=0) > 0]
    if not X.size:
        return
    repeats = np.random.default_rng(seed).integers(1, 3, size=len(X))
    repeats[: len(X) // 3] = 1
    weighted, repeated = (X, repeats.astype(float)), (np.repeat(X, repeats, axis=0), None)
    if twins.columns.recorded(repeated[0], np.ones(len(repeated[0]))).variance.any():
        assert len(X) < 10
        return
    one, two = descents(X[: 1 + len(X) // 2], weighted, repeated)
    for (labels, V, tree), (other, other_V, other_tree) in zip(one, two, strict=True):
        assert np.array_equal(np.repeat(labels, repeats), other)
        np.testing.assert_allclose(V, other_V, rtol=1e-9, atol=1e-2)
        np.testing.assert_allclose(tree, other_tree, rtol=1e-6)


def test_rows_count_where_all_columns_are_in_steps():
    """Five kinds of rows are clusters if there are many of each; a weight is no number of rows."""
    kinds = np.random.default_rng(0).normal(size=(5, 2))
    rows = np.repeat(kinds, 50, axis=0)
    assert cluster_path(rows, random_state=0).best == 5
    assert cluster_path(kinds, sample_weight=np.full(5, 50.0), random_state=0).best == 1
    criterion, _ = sample_module.squared_euclidean(rows, None, 1)
    assert (criterion.distinct, criterion.cap) == (250, 5)
    numbers = np.column_stack([rows, np.arange(250.0) ** 1.5])
    criterion, _ = sample_module.squared_euclidean(np.vstack([numbers] * 2), None, 1)
    assert (criterion.distinct, criterion.cap) == (250, 83)


@pytest.mark.parametrize("unit", [2.0**-10, 1.0, 2.0**10])
@pytest.mark.parametrize("seed", range(1, 4))
def test_unit_of_skewed_columns_that_follow_from_others(seed, unit):
    """Transformed, they no longer do: densities in more directions are no lower in other units."""
    rates = np.random.default_rng(seed).lognormal(size=(300, 2))
    X = np.column_stack([rates, rates.sum(axis=1)])
    one, two = cluster_path(X, random_state=0), cluster_path(unit * X, random_state=0)
    assert len(one.skewed) == 3
    assert one.best == two.best


@pytest.mark.parametrize("seed", range(4))
def test_rows_without_weight_say_nothing_of_columns(seed):
    """Nor of values filled in, of rows that differ, or of a column in steps."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 2)) + 6.0 * rng.integers(2, size=(200, 1))
    X[rng.random(200) < 0.06, 0] = X[:, 0].mean()
    steps = np.column_stack([rng.integers(4, size=(200, 2)), np.full(200, 2.0)])
    for rows in (X, steps):
        other = rows.max() * rng.normal(size=(300, rows.shape[1]))
        both, weight = np.vstack([rows, other]), np.r_[np.ones(200), np.zeros(300)]
        order = rng.permutation(500)
        one = cluster_path(both[order], sample_weight=weight[order], random_state=0)
        two = cluster_path(rows[order[order < 200]], random_state=0)
        assert np.array_equal(one.n_clusters, two.n_clusters)
        assert (one.best, one.n_samples) == (two.best, two.n_samples)
        np.testing.assert_allclose(one.criterion, two.criterion, rtol=1e-6, atol=1e-2)


def descents(centers, *rows):
    """For each (rows, weights): labels, criterion and the tree so far, at every K."""
    found = []
    for X, weight in rows:
        criterion, descent = sample_module.squared_euclidean(np.ascontiguousarray(X), weight, 1)
        descent.start(centers)
        descent.run_lloyd(5)
        found.append([])
        for k in descent.down(lambda k: 1, 5):
            V = criterion(descent.sweep)[0] if k <= max(1, criterion.distinct // 3) else 0.0
            tree = np.array(descent.tree).reshape(-1, 4)
            found[-1].append((descent.sweep.labels.copy(), V, tree))
    return found


# The same bits ------------------------------------------------------------------------------


def test_same_bits_for_the_same_random_state():
    X = blobs(np.random.default_rng(3), 7000, 3, 12, spread=0.3)
    one, two = (cluster_path(X, random_state=5) for _ in range(2))
    assert path_bits(one) == path_bits(two)
    assert path_bits(cluster_path(X, random_state=6)) != path_bits(one)
    shared = np.random.RandomState(5)
    assert path_bits(cluster_path(X, random_state=shared)) == path_bits(one)
    assert path_bits(cluster_path(X, random_state=shared)) != path_bits(one)


# What a path can do -------------------------------------------------------------------------


def test_pickled_path_has_no_rows():
    path = cluster_path(X_SMALL, random_state=0)
    assert len(pickle.dumps(path)) < 20_000 + X_SMALL.nbytes
    for other in (pickle.loads(pickle.dumps(path)), copy.deepcopy(path)):
        assert path_bits(other) == path_bits(path)
        assert repr(other) == repr(path)
        assert np.array_equal(other.labels(3, X_SMALL), path.labels(3))
        with pytest.raises(ValueError, match="X must be given"):
            other.labels(3)
    model = pickle.loads(pickle.dumps(DPMeans(random_state=0).fit(X_SMALL)))
    assert np.array_equal(model.path_.labels(3, X_SMALL), model.predict(X_SMALL))


def test_pickled_path_of_skewed_columns_has_no_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 30)) + 8.0 * rng.normal(size=(3, 30))[rng.integers(3, size=500)]
    X[:, :10] = rng.gamma(1.0, size=(500, 10))
    path = cluster_path(X, random_state=0)
    size = len(pickle.dumps(path))
    assert size < 30_000 < X[:, :10].nbytes
    other = pickle.loads(pickle.dumps(path))
    assert np.array_equal(other.skewed, path.skewed) and len(path.skewed) > 5
    assert len(pickle.dumps(path)) == size


def test_tables():
    path = cluster_path(X_SMALL, random_state=0)
    table = path.to_pandas()
    assert table.index.name == "n_clusters" and table.index.tolist() == path.n_clusters.tolist()
    assert table.columns.tolist() == ["inertia", "criterion", "lam_low", "lam_high"]
    columns = path.to_dict()
    assert list(columns) == ["n_clusters", *table.columns]
    for name in table.columns:
        assert np.array_equal(table[name], columns[name])
    assert f"best={path.best}" in repr(path)


PATHS = {
    "clusters": (lambda: cluster_path(X_SMALL, random_state=0), "n_clusters", "inertia"),
    "features": (lambda: feature_path(X_SMALL > 0, 3, random_state=0), "n_components", "error"),
    "cuts": (
        lambda: cut_path(np.kron(np.eye(6), np.ones((5, 5))) + 0.02, random_state=0),
        "n_clusters",
        "cut",
    ),
}


@pytest.mark.parametrize("kind", PATHS)
def test_paths_are_of_one_kind(kind):
    make, count, error = PATHS[kind]
    path = make()
    assert isinstance(path, Path)
    n = len(path.counts)
    for name in ("counts", "error", "criterion", "lam_low", "lam_high"):
        assert getattr(path, name).shape == (n,)
    assert path.counts.dtype == np.intp and (np.diff(path.counts) > 0).all()
    assert getattr(path, count) is path.counts and getattr(path, error) is path.error
    columns = path.to_dict()
    assert list(columns) == [count, error, "criterion", "lam_low", "lam_high"]
    table = path.to_pandas()
    assert table.index.name == count and table.index.tolist() == path.counts.tolist()
    other = pickle.loads(pickle.dumps(path))
    assert repr(other) == repr(path) and f"{count}={path.counts[0]}..{path.counts[-1]}" in repr(
        path
    )
    assert path.best in path.counts
    for k, low, high in zip(path.counts, path.lam_low, path.lam_high, strict=True):
        if low < high and low + high < np.inf:
            assert path.at((low + high) / 2) == k == other.at(np.float32((low + high) / 2))
    for bad in ("1", None, [1.0], np.nan, np.inf, -np.inf, True):
        with pytest.raises((TypeError, ValueError), match="lam must"):
            path.at(bad)


@pytest.mark.parametrize("make", [DPMeans, MiniBatchDPMeans, MixedDPMeans, ShapeMeans])
def test_a_path_shows_what_users_use(make):
    """Its public names, after pickling too, are attributes that are explained, and methods."""
    path = make(random_state=0).fit(make_blobs(200, 2, random_state=0)[0]).path_
    text = "".join(inspect.getdoc(kind) for kind in type(path).__mro__[:-1])
    explained = {n for line in re.findall(r"(?m)^(.*) : ", text) for n in line.split(", ")}
    methods = {"at", "centers", "labels", "measured", "to_dict", "to_pandas", "without_gap"}
    for seen in (path, pickle.loads(pickle.dumps(path))):
        shown = {name for name in dir(seen) if not name.startswith("_")}
        assert shown - explained - methods <= {"inertia", "n_clusters"}


def test_path_at_a_tie():
    """Where two numbers are as good, the lower one."""
    low, high = envelope([0, 1, 2], [10.0, 4.0, 1.0])
    path = FeaturePath([0, 1, 2], np.array([10.0, 4.0, 1.0]), low, high, np.zeros(3), 0, 7.0)
    assert [path.at(lam) for lam in (7, 6, 5, 3, 2.9)] == [0, 0, 1, 1, 2]


def test_linkage_of_blobs():
    """Cut where it has K clusters, the tree gives those of the path."""
    X, truth = planted(6)
    path = cluster_path(X, random_state=0)
    assert path.best == 6
    cut = hierarchy.fcluster(path.linkage, 6, criterion="maxclust")
    assert cut.max() == 6
    leaves = path.labels(path.n_clusters[-1])
    assert adjusted_rand_score(cut[leaves], path.labels(6)) == 1.0
    assert adjusted_rand_score(truth, path.labels(6)) == 1.0
    drawn = hierarchy.dendrogram(path.linkage, no_plot=True)
    assert sorted(drawn["leaves"]) == list(range(path.n_clusters[-1]))
    # Ward's mergers, without sweeps that would move rows between them: those of scipy
    heights = hierarchy.ward(path.centers(6))[:, 2] * np.sqrt(40)
    np.testing.assert_allclose(path.linkage[-5:, 2], heights, rtol=0.05)


@pytest.mark.parametrize("seed", [5, 28, 46, 86, 99, 138, 169])
def test_linkage_where_a_sweep_empties_a_cluster(seed, monkeypatch):
    """From given centers, where that happens; the tree hands it to the nearest one."""
    emptied = []
    drop = descent_module.MergeDescent._drop

    def noted(self, remap, centers):
        emptied.append(np.count_nonzero(remap < 0))
        drop(self, remap, centers)

    monkeypatch.setattr(descent_module.MergeDescent, "_drop", noted)
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(20, 60)), int(rng.integers(1, 4))
    X = rng.normal(size=(n, d))
    init = X[rng.choice(n, n // 2, replace=False)] + 0.5 * rng.normal(size=(n // 2, d))
    path = DPMeans(init=init, random_state=0).fit(X).path_
    assert sum(emptied) > 0
    check_path(path, X)


def test_centers_and_labels_out_of_reach():
    path = cluster_path(X_SMALL, random_state=0)
    last = int(path.n_clusters[-1])
    for method in (path.centers, path.labels):
        for k, error, words in (
            (0, ValueError, "k must be >= 1, got 0"),
            (-3, ValueError, "k must be >= 1, got -3"),
            (last + 1, ValueError, f"k={last + 1}.*ends at {last}"),
            (2.0, TypeError, "k must be an integer, got 2.0"),
            (True, TypeError, "k must be an integer, got True"),
            ("2", TypeError, "k must be an integer, got '2'"),
            (None, TypeError, "k must be an integer, got None"),
        ):
            with pytest.raises(error, match=words):
                method(k)
        assert len(method(np.int64(last))) in (last, len(X_SMALL))
    with pytest.raises(ValueError, match="X must have 2 columns, got 3"):
        path.labels(2, np.zeros((4, 3)))
    with pytest.raises(ValueError, match="NaN"):
        path.labels(2, [[np.nan, 1.0]])
    with pytest.raises(ValueError, match="n_threads must be >= 1, got 0"):
        path.labels(2, n_threads=0)
    assert path.labels(2, [[0, 1]]).shape == (1,)
    path.centers(2)[:] = 0  # a copy
    assert path.centers(2).any()


def test_numbers_left_out_are_named():
    X = np.arange(3000.0)[:, None] ** 1.5
    path = DPMeans(lam=2e4, algorithm="merge", random_state=0).fit(X).path_
    assert path.n_clusters[-1] > 300
    left_out = sorted(set(range(1, path.n_clusters[-1])) - set(path.n_clusters))
    assert left_out and left_out[0] > 32
    with pytest.raises(ValueError, match=f"k={left_out[0]}.*n_clusters"):
        path.centers(left_out[0])


def test_centers_beyond_room_are_not_kept(monkeypatch):
    X = blobs(np.random.default_rng(0), 40, 4, 3, spread=0.1)
    whole = cluster_path(X, random_state=0)
    monkeypatch.setattr(search_module, "ROOM", 0)
    path = cluster_path(X, random_state=0)
    kept = path.best + 1
    while 4 * (kept + 1) * (kept + 2) // 2 <= X.size:
        kept += 1
    assert kept < path.n_clusters[-1]
    assert np.array_equal(path.centers(kept), whole.centers(kept))
    with pytest.raises(ValueError, match=f"k must be <= {kept}, got k={kept + 1}"):
        path.labels(kept + 1)


@pytest.mark.parametrize(
    ("d", "numbers", "expected", "best"),
    [
        (512, {2500: 1, 20_000: 4}, [2500, 20_000], 4),
        (513, {2500: 3}, [2500], 3),
        (513, {2500: 2, 5000: 3}, [2500, 5000], 3),
        (513, {2500: 1, 5000: None, 20_000: 4}, [2500, 5000, 20_000], 4),
        (513, {2500: 1, 5000: 2, 20_000: 4}, [2500, 5000, 20_000], 4),
        (513, {2500: 1, 5000: 2, 20_000: None}, [2500, 5000, 20_000], 1),
        (3501, {2500: 1, 5000: 4}, [2500, 5000], 4),
    ],
)
def test_larger_samples_of_many_columns(d, numbers, expected, best, monkeypatch):
    sizes = []

    def find(search, problem, size, above=0):
        sizes.append(size)
        number = numbers[size]
        path = SimpleNamespace(best=number, value_per_row=-size)
        return None if number is None else SimpleNamespace(path=path)

    monkeypatch.setattr(search_module, "_find_from", find)
    problem = PathProblem(np.broadcast_to(np.arange(d) % 2.0, (30_000, d)), None, 1)
    search = search_module.PathSearch(None, None, None, None)
    assert search_module._find(search, problem).path.best == best
    assert sizes == expected


# Bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"max_clusters": 0}, ValueError, "max_clusters must be >= 1, got 0"),
        ({"max_clusters": 2.5}, TypeError, "max_clusters must be an integer or None, got 2.5"),
        ({"n_threads": 0}, ValueError, "n_threads must be >= 1, got 0; None takes all threads"),
        ({"random_state": "x"}, ValueError, "'x'"),
        ({"sample_weight": -np.ones(90)}, ValueError, "sample_weight must be >= 0, got .*-1.0"),
        ({"sample_weight": np.zeros(90)}, ValueError, "sample_weight.*all zeros"),
        ({"sample_weight": np.full(90, np.nan)}, ValueError, "sample_weight must be finite"),
        ({"sample_weight": np.full(90, np.inf)}, ValueError, "sample_weight must be finite"),
        ({"sample_weight": np.ones(89)}, ValueError, r"sample_weight.*\(90,\).*\(89,\)"),
    ],
)
def test_bad_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        cluster_path(X_SMALL, **arguments)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_scales_whose_squares_leave_the_range_of_float64(scale):
    for call in (cluster_path, DPMeans().fit):
        with pytest.raises(ValueError, match=r"X must.*1e-?140.*rescale"):
            call(X_SMALL * scale)


@pytest.mark.parametrize("exponent", [-450, -330, 250, 330, 450])
def test_extreme_scales(exponent):
    """In the plane, where clusters have covariances of their own."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(100, 2)) * shape for shape in ([1, 0.1], [0.1, 1])])
    X[100:] += [3.0, 1.0]
    one, two = (cluster_path(data, random_state=0) for data in (X, X * 2.0**exponent))
    assert one.best == two.best == 2
    assert two.lam == one.lam * 2.0 ** (2 * exponent)
    finite = np.isfinite(one.criterion)
    shift = two.criterion[finite] - one.criterion[finite]
    np.testing.assert_allclose(shift, shift[0], rtol=1e-9, atol=1e-2)


@pytest.mark.parametrize("far", [1e10, 1e30, 1e38, 1e60, 1e130])
def test_a_row_at_the_end_of_the_world(far):
    """A code for missing values: the path has it in a cluster of its own."""
    path = cluster_path(np.vstack([X_SMALL, [[far, far]]]), random_state=0)
    assert path.best >= 2 and np.isfinite(path.lam)
    assert np.sum(path.labels(path.best) == path.labels(path.best)[-1]) == 1


@pytest.mark.parametrize("factor", [1e-300, 1e-100, 1e100])
def test_extreme_weights(factor):
    one = cluster_path(X_SMALL, random_state=0)
    two = cluster_path(X_SMALL, sample_weight=np.full(90, factor), random_state=0)
    assert np.array_equal(one.n_clusters, two.n_clusters)
    np.testing.assert_allclose(two.criterion, one.criterion, rtol=1e-6)
    np.testing.assert_allclose(two.lam, one.lam * factor, rtol=1e-9)


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_zeros_of_constant_columns_have_one_sign(make):
    X = np.column_stack([X_SMALL, np.zeros((90, 2))])
    X[0, 2] = X[-1, 3] = -0.0
    for Y in (X, X[::-1].copy()):
        assert not np.signbit(cluster_path(make(Y), random_state=0).centers(1)[:, 2:]).any()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_few_rows(n, d):
    """At most a third of the rows is a number of clusters, but 1 always is."""
    X = np.random.default_rng(n).normal(size=(n, d))
    path = cluster_path(X, random_state=0)
    check_path(path, X)
    assert path.best <= max(1, n // 3)
    assert np.isfinite(path.criterion[: max(1, n // 3)]).all()
    assert np.isinf(path.criterion[path.n_clusters > max(1, n // 3)]).all()
    for model in (DPMeans(random_state=0), MiniBatchDPMeans(random_state=0)):
        assert model.fit(X).n_clusters_ <= max(1, n // 3)


@pytest.mark.parametrize("X", [np.full((50, 3), 0.1), np.zeros((7, 1)), [[5.0, 1.0]]])
def test_all_rows_equal(X):
    weights = np.arange(1.0, len(X) + 1)
    for w in (None, weights):
        path = cluster_path(X, sample_weight=w, random_state=0)
        assert (path.n_clusters.tolist(), path.best, path.lam) == ([1], 1, 1.0)
        assert path.inertia.tolist() == [0.0]
        assert path.linkage.shape == (0, 4)
        assert not path.labels(1).any()
        for algorithm in ("serial", "collapsed", "merge"):
            model = DPMeans(algorithm=algorithm, random_state=0).fit(X, sample_weight=w)
            assert (model.n_clusters_, model.inertia_, model.lam_) == (1, 0.0, 1.0)
            assert np.array_equal(model.cluster_centers_[0], np.asarray(X)[0])
    assert MiniBatchDPMeans().partial_fit(X).n_clusters_ == 1


def test_only_one_row_has_weight():
    weights = np.zeros(90)
    weights[17] = 3.0
    path = cluster_path(X_SMALL, sample_weight=weights, random_state=0)
    assert path.best == 1
    assert np.array_equal(path.centers(1)[0], X_SMALL[17])
    model = DPMeans(random_state=0).fit(X_SMALL, sample_weight=weights)
    assert model.n_clusters_ == 1 and not model.labels_.any()


def test_rows_repeated_a_thousand_times():
    """Few values, each a thousand times, are clusters themselves; weights say nothing of that."""
    X = planted(4, 8)[0]
    model = DPMeans(random_state=0).fit(X)
    many = DPMeans(random_state=0).fit(np.repeat(X, 1000, axis=0))
    assert model.n_clusters_ == 4 and many.n_clusters_ == 32
    assert np.array_equal(many.labels_[::1000], many.predict(X))
    weighted = DPMeans(random_state=0).fit(X, sample_weight=np.full(32, 1000.0))
    assert weighted.n_clusters_ == 4
    apart = DPMeans(lam=1e-6, algorithm="merge", random_state=0).fit(np.repeat(X, 1000, axis=0))
    assert apart.n_clusters_ == 32 and apart.inertia_ < 1e-20
    for count in (3, 29):  # all columns are in steps, so that all rows count
        few = cluster_path(np.repeat(X[:count], 1000, axis=0), random_state=0)
        assert few.n_clusters[-1] == few.best == count


def test_a_column_that_varies_in_few_rows():
    """The rows drawn to begin with do not know of it."""
    rng = np.random.default_rng(0)
    z = rng.integers(0, 20, size=8000)
    X = 0.3 * rng.normal(size=(8000, 3)) + z[:, None] * [[3, -2, 1.0]]
    rare = np.insert(X, 0, 0.0, axis=1)
    rare[7, 0] = 1.0
    for seed in range(4):
        plain, path = (cluster_path(data, random_state=seed) for data in (X, rare))
        assert plain.best == path.best == 20
        np.testing.assert_allclose(path.inertia[19], plain.inertia[19], rtol=1e-2)
        assert adjusted_rand_score(path.labels(20), z) > 0.999


def test_rows_that_differ_are_few():
    """So few that those drawn to begin with are all equal: then each value is a cluster."""
    X = np.zeros((10_000, 2))
    X[3], X[5] = [1.0, 2.0], [4.0, 5.0]
    path = cluster_path(X, random_state=0)
    np.testing.assert_allclose(path.inertia[0], X.var(axis=0).sum() * 10_000, rtol=0.5)
    for unit in (1.0, 1e-6, 1e6):
        model = DPMeans(random_state=0).fit(X * unit)
        assert model.n_clusters_ == 3 and model.inertia_ == 0.0


def test_long_clusters_far_from_the_origin():
    """n > 5000 and a second descent: all samples are measured from the same origin."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(9000, 3)) * [4, 0.3, 0.3]
    X[:, 1] += 3 * np.repeat(range(3), 3000)
    X = np.round(X * 1024) / 1024
    paths = [cluster_path(X + offset, random_state=0) for offset in ([0, 0, 0], [0, 30.5, 30.5])]
    assert_same_path(*paths)


def test_refit_without_auto_drops_the_path():
    model = DPMeans(random_state=0).fit(X_SMALL)
    assert model.path_.best == 3
    assert not hasattr(model.set_params(lam=0.1).fit(X_SMALL), "path_")
    assert model.set_params(algorithm="merge").fit(X_SMALL).path_ is not None
    assert not hasattr(
        model.set_params(lam="farthest-first", algorithm="serial").fit(X_SMALL), "path_"
    )
    stream = MiniBatchDPMeans(random_state=0).fit(X_SMALL)
    assert stream.path_.best == 3
    assert not hasattr(stream.set_params(lam=0.1).fit(X_SMALL), "path_")


# lam="auto" ---------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["serial", "delayed", "collapsed", "merge"])
@pytest.mark.parametrize("weighted", [False, True])
def test_auto(algorithm, weighted):
    X, truth = planted(7, 50, d=3, spread=0.15)
    weights = np.random.default_rng(0).gamma(2.0, size=len(X)) + 0.1 if weighted else None
    model = DPMeans(algorithm=algorithm, random_state=0).fit(X, sample_weight=weights)
    assert model.n_clusters_ == model.path_.best == 7
    assert adjusted_rand_score(model.labels_, truth) > 0.98
    assert model.lam_ == model.path_.lam
    assert np.array_equal(model.labels_, model.predict(X))
    check_state(model, X, weights)
    i = list(model.path_.n_clusters).index(7)
    assert model.inertia_ <= model.path_.inertia[i] * (1 + 1e-12)
    if algorithm != "collapsed":  # nothing is opened at this penalty: a fixed point of Algorithm 1
        again = DPMeans(lam=model.lam_, init=model.cluster_centers_).fit(X, sample_weight=weights)
        assert np.array_equal(again.labels_, model.labels_)


def test_auto_is_the_default():
    assert DPMeans().lam == MiniBatchDPMeans().lam == BregmanDPMeans().lam == "auto"
    explicit = DPMeans(lam="auto", random_state=0).fit(X_SMALL)
    assert explicit.lam_ == DPMeans(random_state=0).fit(X_SMALL).lam_


def test_cap_on_auto():
    X = planted(6)[0]
    free = cluster_path(X, random_state=0)
    assert free.best == 6
    for cap in (1, 2, 4, 5, 6, 7, 240, 10_000):
        model = DPMeans(max_clusters=cap, random_state=0).fit(X)
        path = cluster_path(X, max_clusters=cap, random_state=0)
        assert path_bits(path) == path_bits(model.path_)
        assert model.n_clusters_ == path.best <= cap
        allowed = path.criterion[path.n_clusters <= cap]
        chosen = path.criterion[path.n_clusters == path.best][0]
        assert chosen <= allowed.min() + 2 * np.log(len(X))
        assert cap < 6 or path.best == 6
        check_state(model, X)


def test_auto_from_given_centers():
    """The descent begins at these centers."""
    X, truth = planted(6)
    init = X[::10]
    model = DPMeans(init=init, random_state=0).fit(X)
    assert model.n_clusters_ == 6 and adjusted_rand_score(model.labels_, truth) == 1.0
    assert model.path_.n_clusters[-1] <= len(init)
    model_b = DPMeans(init=init, random_state=1).fit(X)  # nothing is drawn
    assert path_bits(model_b.path_) == path_bits(model.path_)
    few = DPMeans(init=X[[0, 100, 200]], random_state=0).fit(X)
    assert few.path_.n_clusters[-1] <= 3
    model_a = DPMeans(init=X[:1], random_state=0).fit(X)
    assert model_a.n_clusters_ == 1 and model_a.path_.n_clusters.tolist() == [1]
    np.testing.assert_allclose(model_a.cluster_centers_[0], X.mean(axis=0), atol=1e-12)
    far = DPMeans(init=[[1e6, 1e6], [0.0, 0.0]], random_state=0).fit(X)
    assert far.n_clusters_ == 1
    with pytest.raises(ValueError, match="init must have at most max_clusters=5"):
        DPMeans(init=X[:6], max_clusters=5).fit(X)


def test_starts_keep_the_path_of_the_lowest_criterion():
    X = blobs(np.random.default_rng(2), 2500, 2, 25, spread=0.09)
    rng, found = check_random_state(3), []
    for start in range(4):
        if start:
            rng.permutation(len(X))
        found.append(cluster_path(X, random_state=rng))
    values = [path.criterion.min() for path in found]
    assert len(set(values)) > 1
    model = DPMeans(n_init=4, random_state=3).fit(X)
    assert path_bits(model.path_) == path_bits(found[int(np.argmin(values))])
    check_state(model, X)


def test_starts_of_merge_keep_the_lowest_objective():
    X = blobs(np.random.default_rng(8), 500, 4, 25, spread=0.25)
    model = DPMeans(lam=1.0, algorithm="merge", random_state=3).fit(X)
    many = DPMeans(lam=1.0, algorithm="merge", n_init=4, random_state=3).fit(X)
    assert many.objective_ <= model.objective_
    assert hasattr(many, "path_") and many.lam_ == 1.0


def test_verbose(capsys):
    DPMeans(random_state=0).fit(X_SMALL)
    assert capsys.readouterr().out == ""
    model = DPMeans(random_state=0, verbose=1).fit(X_SMALL)
    out = capsys.readouterr().out
    assert "coarse path: 90 rows" in out and "path: 90 rows" in out and "sweep 1: 3 clusters" in out
    assert f"best {model.n_clusters_}" in out
    cluster_path(X_SMALL, random_state=0, verbose=1)
    assert "best 3" in capsys.readouterr().out
    MiniBatchDPMeans(random_state=0, verbose=1).fit(X_SMALL)
    out = capsys.readouterr().out
    assert "path: 90 rows" in out and "pass 1: 3 clusters" in out


@pytest.mark.parametrize(
    ("k", "d", "n_each"),
    [(1, 3, 300), (2, 2, 80), (5, 4, 60), (12, 2, 50), (30, 3, 40), (60, 3, 9)],
)
def test_planted_clusters(k, d, n_each):
    for seed in range(3):
        X, truth = planted(k, n_each, d, seed=seed)
        model = DPMeans(random_state=seed).fit(X)
        assert model.n_clusters_ == k
        assert adjusted_rand_score(model.labels_, truth) == 1.0
        assert DPMeans(random_state=seed).fit(X.astype(np.float32)).n_clusters_ == k


def test_known_sets():
    # two of the three species overlap without a gap: with a covariance of their own they are one
    assert DPMeans(random_state=0).fit(load_iris().data).n_clusters_ == 2
    X, truth = make_blobs(600, centers=5, n_features=6, random_state=1)
    model = DPMeans(random_state=0).fit(X)
    assert model.n_clusters_ == 5 and adjusted_rand_score(model.labels_, truth) == 1.0


@pytest.mark.parametrize("n", [60, 800, 7000])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_one_cluster(n, d):
    """A Gaussian, a long one, and a box are one cluster."""
    rng = np.random.default_rng([n, d])
    for X in (
        rng.normal(size=(n, d)),
        rng.normal(size=(n, d)) * 10.0 ** np.linspace(0, 1, d),
        rng.random((n, d)),
    ):
        assert DPMeans(random_state=0).fit(X).n_clusters_ == 1


# Stream -------------------------------------------------------------------------------------


def test_auto_of_a_stream():
    """The penalty comes from the first batch, where the clusters are found, and stays."""
    rng = np.random.default_rng(0)
    X, truth = planted(8, 500, d=3)
    order = rng.permutation(len(X))
    model = MiniBatchDPMeans(random_state=0)
    for i in range(10):
        rows = order[i * 400 : (i + 1) * 400]
        model.partial_fit(X[rows])
        if i == 0:
            lam, path = model.lam_, model.path_
            assert path.best == model.n_clusters_ == 8
        assert model.lam_ == lam and model.path_ is path
        assert np.array_equal(model.labels_, model.predict(X[rows]))
        np.testing.assert_allclose(model.objective_, model.inertia_ + lam * model.n_clusters_)
    assert model.n_clusters_ == 8
    assert adjusted_rand_score(model.predict(X), truth) == 1.0
    late = np.full((5, 3), 40.0)  # a cluster that the first batch did not have
    assert model.partial_fit(late).n_clusters_ == 9


def test_auto_of_mini_batches():
    X, truth = planted(12, 200, d=2)
    model = MiniBatchDPMeans(random_state=0, batch_size=256).fit(X)
    assert model.n_clusters_ == model.path_.best == 12
    assert adjusted_rand_score(model.labels_, truth) == 1.0
    capped = MiniBatchDPMeans(random_state=0, max_clusters=4).fit(X)
    assert capped.n_clusters_ <= 4
    given = MiniBatchDPMeans(random_state=0, init=X[::40]).fit(X)
    assert given.n_clusters_ == 12
    weights = np.random.default_rng(0).gamma(2.0, size=len(X)) + 0.1
    for factor in (1.0, 1e-6, 1e6):
        model = MiniBatchDPMeans(random_state=0, batch_size=256)
        assert model.fit(X, sample_weight=factor * weights).n_clusters_ == 12
        late = model.partial_fit(np.full((5, 2), 90.0), sample_weight=np.full(5, factor))
        assert late.n_clusters_ == 13


# Other divergences --------------------------------------------------------------------------


def planted_means(seed, k, n_each, rates):
    """Means of the rows of k clusters that differ in at least three of twelve columns."""
    rng = np.random.default_rng(seed)
    mean = np.zeros((k, 12))
    while k > 1 and min((a != b).sum() for a, b in combinations(mean, 2)) < 3:
        mean = rng.choice(rates, size=(k, 12))
    z = np.repeat(np.arange(k), n_each)
    return (mean if k > 1 else rng.choice(rates, size=(1, 12)))[z], z, rng


PLANTED = {
    "kl": ([2.0, 10.0, 30.0], lambda rng, mean: rng.poisson(mean).astype(float)),
    "itakura_saito": ([0.1, 1.0, 10.0], lambda rng, mean: rng.gamma(4.0, mean / 4.0)),
    "logistic": ([0.05, 0.95], lambda rng, mean: (rng.random(mean.shape) < mean).astype(float)),
}


@pytest.mark.parametrize("divergence", PLANTED)
@pytest.mark.parametrize("k", [1, 3, 6])
def test_auto_of_divergences(divergence, k):
    rates, draw = PLANTED[divergence]
    for seed in range(3):
        mean, truth, rng = planted_means(seed, k, 80, rates)
        X = draw(rng, mean)
        model = BregmanDPMeans(divergence=divergence, random_state=seed).fit(X)
        best = model.path_.best
        assert model.n_clusters_ == best
        if divergence == "logistic":  # equal rows count once, so that 0/1 rows are little evidence
            assert min(k, 2) <= best <= k
        else:
            assert best == k
            assert adjusted_rand_score(model.labels_, truth) > 0.9
        assert np.array_equal(model.labels_, model.predict(X))
        assert np.array_equal(model.path_.labels(best), model.labels_)
        np.testing.assert_allclose(model.objective_, model.inertia_ + model.lam_ * best)
        assert np.all(np.diff(model.objective_path_) <= 1e-9 * model.objective_path_[0])
        assert np.all(np.diff(model.path_.inertia) < 0)
        check_linkage(model.path_)


def test_auto_of_squared_distances_is_that_of_dpmeans():
    X = planted(5)[0]
    model_a, model_b = DPMeans(random_state=0).fit(X), BregmanDPMeans(random_state=0).fit(X)
    assert np.array_equal(model_a.labels_, model_b.labels_)
    assert path_bits(model_a.path_) == path_bits(model_b.path_)


@pytest.mark.long
@pytest.mark.parametrize("divergence", PLANTED)
def test_merge_of_divergences(divergence):
    """For a given penalty the objective is not above that of Algorithm 1 from the mean."""
    rates, draw = PLANTED[divergence]
    mean, _, rng = planted_means(0, 5, 60, rates)
    X = draw(rng, mean)
    options = {"divergence": divergence, "random_state": 0}
    auto = BregmanDPMeans(**options).fit(X)
    for factor in (0.3, 1.0, 3.0):
        merged = BregmanDPMeans(lam=factor * auto.lam_, algorithm="merge", **options).fit(X)
        serial = BregmanDPMeans(lam=factor * auto.lam_, **options).fit(X)
        assert merged.objective_ <= serial.objective_ * (1 + 1e-9)
    weights = rng.integers(0, 3, size=len(X)).astype(float)
    weighted = BregmanDPMeans(**options).fit(X, sample_weight=weights)
    if divergence == "logistic":  # of few different rows
        assert 2 <= weighted.n_clusters_ <= auto.n_clusters_ == 5
    else:
        assert weighted.n_clusters_ == auto.n_clusters_
    assert np.array_equal(weighted.labels_, weighted.predict(X))
    capped = BregmanDPMeans(max_clusters=2, **options).fit(X)
    assert capped.n_clusters_ == 2


# The warning --------------------------------------------------------------------------------


def warned(model, X, **options):
    """Texts of the warnings of a fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, **options)
    assert not any(issubclass(w.category, ConvergenceWarning) for w in caught)
    return [str(w.message) for w in caught if issubclass(w.category, UserWarning)]


@pytest.mark.parametrize("algorithm", ["serial", "delayed", "collapsed"])
def test_warning_where_one_cluster_is_left_beside_better_ones(algorithm):
    X = planted(4, 100)[0]
    reach = np.square(X - X.mean(axis=0)).sum(axis=1).max()
    for lam in (1.05 * reach, 5 * reach):
        model = DPMeans(lam=lam, algorithm=algorithm)
        if algorithm == "collapsed" and warned(model, X) == []:
            assert model.n_clusters_ > 1
            continue
        (text,) = warned(model, X)
        assert model.n_clusters_ == 1
        assert f"lam={lam:.6g}" in text and re.search("[234] clusters have an objective", text)
        assert "algorithm='merge'" in text and "lam='auto'" in text
        assert not hasattr(model, "path_")
        merged = DPMeans(lam=lam, algorithm="merge", random_state=0)
        assert warned(merged, X) == []
        assert merged.n_clusters_ == 4 and merged.objective_ < 0.9 * model.objective_


def test_no_warning_where_none_is_due():
    X = planted(4, 100)[0]
    total = np.square(X - X.mean(axis=0)).sum()
    reach = np.square(X - X.mean(axis=0)).sum(axis=1).max()
    for model in (
        DPMeans(lam=total), DPMeans(lam=2 * total), DPMeans(lam=np.inf),
        DPMeans(lam=5 * reach, max_clusters=1), DPMeans(lam=0.5 * reach),
        DPMeans(lam=5 * reach, init=X[:1]), DPMeans(max_clusters=1),
        DPMeans(lam=5 * reach, algorithm="merge"), DPMeans(lam="farthest-first", guess=4),
    ):  # fmt: skip
        assert warned(model, X) == []
    one = np.random.default_rng(0).normal(size=(300, 2))
    for model in (DPMeans(lam=300.0), DPMeans(random_state=0)):
        assert warned(model, one) == []
        assert model.n_clusters_ == 1
    assert warned(DPMeans(lam=3.0), [[0.0], [1.0]]) == []
    weights = np.r_[np.zeros(200), np.ones(200)]
    assert warned(DPMeans(lam=2 * total), X, sample_weight=weights) == []


# Merging for a given penalty ----------------------------------------------------------------


def test_merge_against_all_partitions():
    """53 of 60 tiny problems end at the best objective of all; none below it, of course."""
    reached = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(4, 9)), int(rng.integers(1, 4))
        X = rng.normal(size=(n, d))
        lam = float(np.square(X - X.mean(axis=0)).sum() * 10.0 ** -rng.uniform(0.2, 2))
        labels = np.array(all_partitions(n))
        member = np.eye(n)[labels]
        size, total = member.sum(axis=1), np.einsum("pnk,nd->pkd", member, X)
        saved = (np.square(total).sum(axis=2) / np.maximum(size, 1)).sum(axis=1)
        objective = np.square(X).sum() - saved + lam * (labels.max(axis=1) + 1)
        model = DPMeans(lam=lam, algorithm="merge", random_state=0).fit(X)
        assert model.objective_ >= objective.min() * (1 - 1e-9)
        reached += model.objective_ <= objective.min() * (1 + 1e-9)
    assert reached >= 50


@seeds(5)
def test_merge_finds_better_objectives_where_lam_is_large(seed):
    X = blobs(np.random.default_rng(seed), 600, 3, 12, spread=0.2)
    auto = DPMeans(random_state=seed).fit(X)
    for factor in (0.2, 1.0, 4.0):
        lam = factor * auto.lam_
        merged = DPMeans(lam=lam, algorithm="merge", random_state=seed).fit(X)
        assert merged.lam_ == lam
        check_state(merged, X)
        for algorithm in ("serial", "delayed"):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "one cluster is left")
                other_model = DPMeans(lam=lam, algorithm=algorithm).fit(X)
            assert merged.objective_ <= other_model.objective_ * (1 + 1e-9)


def test_merge_with_extreme_penalties():
    X = np.random.default_rng(0).normal(size=(150, 2))
    with pytest.raises(ValueError, match="lam must be > 0, or 0 if max_clusters is given"):
        DPMeans(lam=0, algorithm="merge").fit(X)
    capped = DPMeans(lam=0, algorithm="merge", max_clusters=7, random_state=0).fit(X)
    assert capped.n_clusters_ == 7 and capped.lam_ == 0
    check_state(capped, X)
    every = DPMeans(lam=0, algorithm="merge", max_clusters=1000, random_state=0).fit(X)
    assert every.n_clusters_ == 150
    tiny = DPMeans(lam=1e-9, algorithm="merge", random_state=0).fit(X)
    assert tiny.n_clusters_ == tiny.path_.n_clusters[-1] == 150
    np.testing.assert_allclose(tiny.objective_, 150e-9)
    endless = DPMeans(lam=np.inf, algorithm="merge", random_state=0).fit(X)
    assert endless.n_clusters_ == 1 and endless.objective_ == np.inf
    assert endless.path_.best == 1
    guessed = DPMeans(lam="farthest-first", guess=6, algorithm="merge", random_state=0).fit(X)
    assert guessed.lam_ == pytest.approx(twins.penalty.farthest_first(X, 6))


# One clustering for each number of clusters -------------------------------------------------


def check_fixed_points(path, X, weights=None, rows=None, rtol=1e-9):
    """Inertia is that of the labels, on the rows that the path saw, and centers are means."""
    X = np.asarray(X, dtype=float)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    used = np.flatnonzero(w > 0) if rows is None else rows
    share = w[used].sum() / w.sum()
    for k, error in zip(path.n_clusters.tolist(), path.inertia, strict=True):
        if k > path.longest:
            continue
        centers, labels = path.centers(k), path.labels(k)
        assert len(np.unique(labels[used])) == k == len(centers)
        value = twins.exact.sum_of_squares(X[used], w[used], labels[used], centers)
        rounding = 1e-25 * np.square(X).sum() * w.max()
        np.testing.assert_allclose(value / share, error, rtol=rtol, atol=rounding)
        if k != path.best or rows is None:
            means = twins.exact.weighted_means(X[used], w[used], labels[used])
            means[:, path.noise_columns] = np.average(X[used], axis=0, weights=w[used])[
                path.noise_columns
            ]
            np.testing.assert_allclose(centers, means, atol=1e-9 * np.abs(X).max())


def long_problem(seed, n=400):
    """Clusters longer than they are apart, in the same direction: k-means cuts them across."""
    rng = np.random.default_rng(seed)
    z = rng.integers(3, size=n)
    return rng.normal(size=(n, 4)) * [3.5, 0.3, 0.3, 0.3] + 3 * np.eye(4)[z + 1], z


@pytest.mark.parametrize("cheap", [0, cluster_path_module.CHEAP])
@pytest.mark.parametrize("make", [long_problem, lambda seed: (path_data_of(seed), None)])
@pytest.mark.parametrize("weighted", [False, True])
@seeds(4)
def test_one_clustering_for_each_number(make, weighted, cheap, seed, monkeypatch):
    monkeypatch.setattr(cluster_path_module, "CHEAP", cheap)
    X = make(seed)[0]
    rng = np.random.default_rng(seed)
    weights = rng.gamma(1.0, size=len(X)) * (rng.random(len(X)) > 0.2) if weighted else None
    path = cluster_path(X, sample_weight=weights, random_state=seed)
    check_fixed_points(path, X, weights)
    assert np.all(np.diff(path.inertia) < 0)
    for kind in (X, X.astype(np.float32), scipy.sparse.csr_array(X)):
        model = DPMeans(random_state=seed, n_init=1 + seed % 3).fit(kind, sample_weight=weights)
        labels = model.path_.labels(model.path_.best)
        assert np.array_equal(labels, model.labels_)
        assert np.array_equal(model.path_.centers(model.path_.best), model.cluster_centers_)
        assert model.lam_ == model.path_.lam
        dense = kind.toarray() if scipy.sparse.issparse(kind) else kind
        check_fixed_points(model.path_, dense, weights)
    other = pickle.loads(pickle.dumps(model.path_))
    assert path_bits(other) == path_bits(model.path_)


def path_data_of(seed):
    """Round clusters, some of them near each other."""
    return blobs(np.random.default_rng(seed), 300, 3, 8, spread=0.3)


@pytest.mark.parametrize("cheap", [0, 1 << 30])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_clustering_where_the_path_saw_fewer_rows(weighted, cheap, monkeypatch):
    monkeypatch.setattr(cluster_path_module, "CHEAP", cheap)
    taken = []
    take = sample_module.PathProblem.rows_of

    def noted(self, rows):
        taken.append(rows)
        return take(self, rows)

    monkeypatch.setattr(sample_module.PathProblem, "rows_of", noted)
    X = make_blobs(30_000, 8, centers=6, random_state=0)[0]
    weights = np.random.default_rng(1).gamma(1.0, size=len(X)) if weighted else None
    model = DPMeans(random_state=0).fit(X, sample_weight=weights)
    path = model.path_
    assert path.n_samples == len(taken[-1]) < len(X)
    assert np.array_equal(path.labels(path.best), model.labels_)
    assert np.array_equal(path.centers(path.best), model.cluster_centers_)
    check_fixed_points(path, X, weights, taken[-1])
    alone = cluster_path(X, sample_weight=weights, random_state=0)
    assert not np.array_equal(alone.centers(alone.best), model.cluster_centers_)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits"])
def test_clusterings_are_as_good_as_those_of_k_means(name, scaled):
    X, truth = getattr(datasets, f"load_{name}")(return_X_y=True)
    X = scale(X) if scaled else X
    path = cluster_path(X, random_state=0)
    for k in {len(np.unique(truth)), 2, 3}:
        error = path.inertia[path.n_clusters == k][0]
        assert error <= 1.02 * KMeans(k, n_init=10, random_state=0).fit(X).inertia_
    assert path.lam > 0


@pytest.mark.parametrize("divergence", PLANTED)
def test_one_clustering_of_divergences(divergence):
    rates, draw = PLANTED[divergence]
    mean, _, rng = planted_means(1, 4, 60, rates)
    X = draw(rng, mean)
    for lam in ("auto", 30.0):
        options = {} if lam == "auto" else {"lam": lam, "algorithm": "merge"}
        model = BregmanDPMeans(divergence=divergence, random_state=0, **options).fit(X)
        path = model.path_
        if lam == "auto":
            assert np.array_equal(path.labels(path.best), model.labels_)
            assert np.array_equal(path.centers(path.best), model.cluster_centers_)
        for k, error in zip(path.n_clusters.tolist(), path.inertia, strict=True):
            other_model = BregmanDPMeans(lam=1.0, init=path.centers(k), max_clusters=k)
            other_model.set_params(divergence=divergence).fit(X)
            assert np.array_equal(other_model.labels_, path.labels(k))
            np.testing.assert_allclose(other_model.inertia_, error, rtol=1e-9)
            np.testing.assert_allclose(other_model.cluster_centers_, path.centers(k), rtol=1e-9)


@pytest.mark.parametrize("algorithm", ["collapsed", "merge", "delayed"])
def test_one_clustering_of_other_algorithms(algorithm):
    X = path_data_of(3)
    model = DPMeans(algorithm=algorithm, random_state=0).fit(X)
    assert np.array_equal(model.path_.labels(model.path_.best), model.labels_)
    np.testing.assert_allclose(
        model.path_.inertia[model.path_.n_clusters == model.n_clusters_], model.inertia_
    )
    merged = DPMeans(lam=5.0, algorithm="merge", random_state=0).fit(X)
    check_fixed_points(merged.path_, X)


def test_a_path_of_directions_is_of_means():
    rng = np.random.default_rng(0)
    X = np.repeat(np.eye(4), 50, axis=0) + 0.2 * rng.normal(size=(200, 4))
    X /= np.linalg.norm(X, axis=1)[:, None]
    model = SphericalDPMeans(random_state=0).fit(X)
    assert model.n_clusters_ == 4
    check_fixed_points(model.path_, X, rtol=1e-6)


def test_a_cluster_that_sweeps_empty_opens_elsewhere():
    """Of centers that no row is near; rows that are equal to others give no more."""
    X = np.r_[planted(3)[0], [[5.0, 5.0]]]
    sample = sample_module.PathProblem(X, None, 1).rows_of(None)
    start = np.array([[0.5, 0.5], [90.0, 90.0], [-90.0, 0.0], [80.0, 0.0]])
    centers, error = sample.fixed_point(start)
    assert centers.shape == start.shape
    labels, squares = twins.exact.nearest(X, centers)
    assert len(np.unique(labels)) == 4
    np.testing.assert_allclose(error, squares.sum())
    np.testing.assert_allclose(centers, twins.exact.weighted_means(X, np.ones(len(X)), labels))
    few = np.repeat(X[:2], 5, axis=0)
    sample = sample_module.PathProblem(few, None, 1).rows_of(None)
    centers, error = sample.fixed_point(start[:3])
    assert centers.shape == (3, 2)
    assert error > 0  # the centers given, as there are no three rows


# Labels in the metric of the path -----------------------------------------------------------


def check_metric(model, X, weights=None):
    """All that the fit says is in its metric, but for the centers."""
    X = np.asarray(X, dtype=float)
    w = np.ones(len(X)) if weights is None else weights
    metric, path, labels, used = model.metric_, model.path_, model.labels_, w > 0
    Z, k = X @ metric, model.n_clusters_
    assert metric.shape[0] == X.shape[1] and k == path.best
    assert np.array_equal(metric, path.metric)
    means = twins.exact.weighted_means(Z[used], w[used], labels[used])
    far = 1e-9 * np.abs(Z).max()
    np.testing.assert_allclose(path.centers(k), means, atol=far)
    error = twins.exact.sum_of_squares(Z[used], w[used], labels[used], means)
    np.testing.assert_allclose(model.inertia_, error)
    np.testing.assert_allclose(path.inertia[path.n_clusters == k], error)
    np.testing.assert_allclose(model.objective_, error + model.lam_ * k)
    np.testing.assert_allclose(-model.score(X, sample_weight=weights), model.objective_)
    assert model.lam_ == path.lam
    i = list(path.n_clusters).index(k)
    assert path.lam_low[i] <= path.lam <= path.lam_high[i]
    assert np.all(np.diff(path.inertia) < 0)
    own = twins.exact.weighted_means(X[used], w[used], labels[used])
    np.testing.assert_allclose(model.cluster_centers_, own, atol=1e-9 * np.abs(X).max())
    for found in (model.predict(X), path.labels(k), path.labels(k, X)):
        assert np.array_equal(found, labels)
    squares = ((Z[:, None] - means) ** 2).sum(axis=2)
    np.testing.assert_allclose(model.transform(X) ** 2, squares, rtol=1e-6, atol=far**2 + 1e-9)
    assert np.array_equal(squares.argmin(axis=1)[used], labels[used])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("algorithm", ["serial", "collapsed"])
@seeds(4)
def test_labels_in_the_metric_of_the_path(algorithm, weighted, seed):
    X, truth = long_problem(seed)
    rng = np.random.default_rng(seed)
    weights = rng.gamma(1.0, size=len(X)) * (rng.random(len(X)) > 0.1) if weighted else None
    options = {"algorithm": algorithm, "random_state": seed, "n_init": 1 + seed % 2}
    plain = DPMeans(**options).fit(X, sample_weight=weights)
    model = DPMeans(metric="auto", **options).fit(X, sample_weight=weights)
    assert plain.path_.metric is None and not hasattr(plain, "metric_")
    assert model.path_.best == plain.path_.best == 3
    assert adjusted_rand_score(truth, model.labels_) > 0.99
    # the long direction is a column in which means do not differ: plain labels leave it out
    assert plain.path_.noise_columns.tolist() == [0]
    assert adjusted_rand_score(truth, plain.labels_) > 0.99
    check_metric(model, X, weights)
    other_model = pickle.loads(pickle.dumps(model))
    assert np.array_equal(other_model.predict(X), model.labels_)
    assert np.array_equal(other_model.path_.labels(4, X), model.path_.labels(4))
    assert clone(model).metric == "auto"


def test_labels_in_a_metric_of_columns_that_follow_from_others():
    X, truth = long_problem(1)
    fitted = DPMeans(metric="auto", random_state=0).fit(X)
    more = np.column_stack([X[:, 0], np.full(len(X), 7.0), X[:, 1:], X[:, 1:2] * 3, X.sum(axis=1)])
    frame = pd.DataFrame(more, columns=list("abcdefg"))
    model = DPMeans(metric="auto", random_state=0).fit(frame)
    assert model.metric_.shape == (7, 4)
    assert not model.metric_[1].any()
    assert model.feature_names_in_.tolist() == list("abcdefg")
    check_metric(DPMeans(metric="auto", random_state=0).fit(more), more)
    assert adjusted_rand_score(truth, model.labels_) > 0.99
    far = fitted.fit(X + 1e7)
    check_metric(DPMeans(metric="auto", random_state=0).fit(X.astype(np.float32)), np.float32(X))
    assert adjusted_rand_score(truth, far.labels_) > 0.99 and np.array_equal(
        far.predict(X + 1e7), far.labels_
    )
    single = DPMeans(metric="auto", random_state=0).fit(np.float32(X))
    assert single.transform(np.float32(X)).dtype == np.float32
    names = model.set_output(transform="pandas").transform(frame)
    assert names.shape == (len(X), 3)


def test_labels_in_the_metric_where_the_path_saw_fewer_rows():
    X, truth = long_problem(0, n=24_000)
    model = DPMeans(metric="auto", random_state=0).fit(X)
    path = model.path_
    assert path.n_samples < len(X) and model.n_clusters_ == path.best == 3
    assert np.array_equal(path.labels(3), model.labels_)
    assert np.array_equal(model.predict(X), model.labels_)
    np.testing.assert_allclose(path.inertia[path.n_clusters == 3], model.inertia_, rtol=0.05)
    assert adjusted_rand_score(truth, model.labels_) > 0.99


def test_no_metric_where_squared_distances_are_best():
    X = planted(5)[0]
    model_a, model_b = DPMeans(random_state=0).fit(X), DPMeans(metric="auto", random_state=0).fit(X)
    assert model_b.metric_ is None
    assert path_bits(model_a.path_) == path_bits(model_b.path_)
    assert (
        np.array_equal(model_a.labels_, model_b.labels_)
        and model_a.objective_ == model_b.objective_
    )
    model_b.to_sklearn_kmeans()
    long = DPMeans(metric="auto", random_state=0).fit(long_problem(0)[0])
    with pytest.raises(ValueError, match="metric_ must be None for a KMeans"):
        long.to_sklearn_kmeans()
    assert not hasattr(long.set_params(metric="euclidean").fit(X), "metric_")
    assert np.array_equal(long.predict(X), model_a.labels_)
    assert DPMeans(metric="auto").fit(np.ones((5, 2))).metric_ is None


@pytest.mark.parametrize("lam", [3.0, "farthest-first"])
def test_a_metric_needs_a_path(lam):
    with pytest.raises(ValueError, match="metric must be 'euclidean' for a penalty"):
        DPMeans(lam=lam, metric="auto").fit(X_SMALL)
    with pytest.raises(ValueError, match="metric must be"):
        DPMeans(metric="cosine").fit(X_SMALL)
    with pytest.raises(ValueError, match="metric='auto' takes dense data only"):
        DPMeans(metric="auto").fit(scipy.sparse.csr_array(X_SMALL))


def clusters_of_low_rank(seed, n=6000, d=300, k=6):
    """Clusters that are long in 5 to 20 directions of their own, in many columns."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(k, size=n)
    X = 2.0 * rng.standard_normal((k, d))[labels] + 0.5 * rng.standard_normal((n, d))
    for c in range(k):
        rank = rng.integers(5, 21)
        directions = rng.standard_normal((rank, d)) * np.sqrt(rng.exponential(size=(rank, 1)))
        X[labels == c] += rng.standard_normal((np.count_nonzero(labels == c), rank)) @ directions
    return X


@pytest.mark.long
@seeds(4)
def test_many_rows_of_many_columns_are_not_cut_into_pieces(seed):
    X = clusters_of_low_rank(seed)
    path = cluster_path(X, random_state=0)
    assert path.best == 6
    assert path.n_samples == 2500
    few = cluster_path(X[:, :20], max_clusters=3, random_state=0)
    assert few.n_samples == len(X)


def test_rows_that_differ_by_the_least_number():
    """The tolerance of a column whose numbers are the least of float64 must not be zero."""
    X = np.zeros((50, 2))
    X[:, 0], X[::2, 1] = np.arange(50) % 7, 5e-324
    assert count_different(X) == 7
