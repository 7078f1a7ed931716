"""What makes merge paths of few rows fast: the same numbers as by the longer way."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import twins.exact
from helpers import seeds
from problems import PATH_FAMILIES, path_problem
from smallvar._sweeps.merge import MergeSweep
from smallvar._sweeps.residual_density import eigenpairs

from smallvar import DPMeans, cluster_path
from smallvar._core.frame import RowsFrame
from smallvar._selection import columns
from smallvar._selection import sample as sample_module
from smallvar._selection.descent import descent_by_squares

# the longer way has lengths by the covariance in float32: off by 1e-7 of the longest direction's
# variance over the shortest one's, a row
FLOAT32_OF_V = 1e-5


@pytest.mark.parametrize("family", [f for f in PATH_FAMILIES if f not in ("tiny", "lam")])
@seeds(3)
def test_criterion_in_one_call(family, seed):
    p = path_problem(family, seed, n_max=200)
    X, _, rows = twins.exact.prepare(p.X, p.weights, None)
    X, weight = X[rows], None if p.weights is None else np.asarray(p.weights)[rows]
    X = X[:, np.ptp(X, axis=0) > 0]
    criterion, _ = sample_module.squared_euclidean(X, weight, 1)
    if criterion.small is None:
        assert criterion.rank < X.shape[1]
        return
    for K in (1, 2, 3, 7):
        if criterion.cap < K != 1:
            break
        centers = X[np.random.default_rng(seed).choice(len(X), K, replace=False)]
        labels = twins.exact.without_gaps(twins.exact.nearest(X, centers)[0])[0]
        check_both_ways(criterion, labels)


def check_both_ways(criterion, labels):
    sweep, small = criterion.relabeled(labels, labels.max() + 1), criterion.small
    V, metric, error = criterion(sweep)
    criterion.small = None
    expected = criterion(sweep)
    criterion.small = small
    size = abs(expected[0]) + criterion.distinct
    np.testing.assert_allclose(V, expected[0], rtol=0, atol=FLOAT32_OF_V * size)
    np.testing.assert_allclose(error, expected[2], rtol=1e-12)
    assert (metric is None) == (expected[1] is None)
    if metric is not None:
        M, found = (m.matrix @ m.matrix.T for m in (expected[1], metric))
        np.testing.assert_allclose(found, M, rtol=0, atol=1e-6 * np.abs(M).max())


@pytest.mark.parametrize("d", [2, 3, 5, 13, 24, 30])
@pytest.mark.parametrize("kind", ["full", "half the rank", "unit", "zero", "scaled", "tiny"])
def test_eigenpairs(d, kind):
    rng = np.random.default_rng(d)
    A = rng.normal(size=(d, d if kind != "half the rank" else max(1, d // 2)))
    if kind == "scaled":
        A *= 10.0 ** rng.uniform(-3, 3, size=(d, 1))
    S = A @ A.T * (1e-280 if kind == "tiny" else 1.0)
    S = {"unit": np.eye(d), "zero": np.zeros((d, d))}.get(kind, S)
    values, vectors = eigenpairs(S)
    largest = max(values[0], 1e-300)
    assert (np.diff(values) <= 0).all() and values[-1] >= 0
    expected = np.linalg.eigvalsh(S / largest)[::-1].clip(0.0)
    np.testing.assert_allclose(values / largest, expected, rtol=0, atol=1e-14 * d)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(d), rtol=0, atol=1e-13)
    np.testing.assert_allclose((vectors.T * values) @ vectors / largest, S / largest, atol=1e-13)


@pytest.mark.parametrize("seed", range(8))
def test_sweeps_until_no_row_moves(seed):
    """The same as sweep by sweep; where clusters lose their last row it stops, and says which."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 6, size=(300, 2)) + 0.01 * rng.normal(size=(300, 2))
    sweeps = []
    for _ in range(2):
        label = np.zeros(300, dtype=np.int32)
        sweeps.append(MergeSweep(X, None, None, label, RowsFrame(X, None, 1), 1, 8, True))
        sweeps[-1].start(X[:40] + 1.5)
        sweeps[-1].assign()
        sweeps[-1].move_centers()
    at_once, by_hand = sweeps
    for most in (1, 2, 300, 300, 300):
        swept, before = at_once.run_lloyd(most)
        for step in range(1, most + 1):
            k, centers = by_hand.k, by_hand.centers
            by_hand.assign()
            if by_hand.moved() == 0:
                assert (swept, before) == (step, None)
                break
            by_hand.move_centers()
            if by_hand.k < k:
                assert swept == step
                np.testing.assert_array_equal(before, centers)
                np.testing.assert_array_equal(at_once.remap[:k], by_hand.remap[:k])
                break
        np.testing.assert_array_equal(at_once.labels, by_hand.labels)
        np.testing.assert_array_equal(at_once.centers, by_hand.centers)


def test_small_fits_do_not_look_for_libraries():
    code = (
        "import numpy as np; from smallvar import DPMeans; from smallvar._core import config;"
        "X = np.random.default_rng(0).normal(size=(300, 3));"
        "DPMeans(random_state=0).fit(X); print(config._controller.cache_info().misses);"
        "DPMeans(random_state=0).fit(np.tile(X, 20)); print(config._controller.cache_info().misses)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["0", "1"]


def test_same_fit_with_the_longer_way(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5, 6))[rng.integers(5, size=150)] * 5 + rng.normal(size=(150, 6))
    model = DPMeans(random_state=0).fit(X)
    monkeypatch.setattr("smallvar._selection.criterion.SMALL_PRODUCTS", 0)
    other_model = DPMeans(random_state=0).fit(X)
    np.testing.assert_array_equal(model.labels_, other_model.labels_)
    np.testing.assert_allclose(
        model.path_.criterion, other_model.path_.criterion, rtol=FLOAT32_OF_V
    )


def rows_to_merge(kind, n, seed=0):
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, 4)), None
    if kind in ("grid", "flags"):
        X = rng.integers(0, 2 if kind == "flags" else 5, size=(n, 4)) + 1e-9 * X
        X[: n // 2] = np.round(X[: n // 2])
    elif kind == "lattice":
        X = np.stack(np.meshgrid(*[np.arange(5)] * 4), axis=-1).reshape(-1, 4)
        X = 0.1 * X[rng.permutation(625)]
    elif kind == "offset":
        X += 1e7
    elif kind == "pairs":
        X[1::2] = X[::2] + 1e-8 * X[1::2]
    elif kind == "weighted":
        w = rng.lognormal(0.0, 3.0, size=n)
    elif kind == "heavy tails":
        X = X / rng.uniform(size=(n, 1)) ** 3
    elif kind == "tiny":
        X *= 1e-130
    elif kind == "float32":
        X = X.astype(np.float32)
    return X, w


KINDS = ("round", "grid", "flags", "offset", "pairs", "weighted", "heavy tails", "tiny", "float32")
# of these, costs are equal in exact arithmetic, and differ by rounding
LATTICES = (("lattice", 0), ("lattice", 2))


def all_mergers(X, w, n_threads):
    """Pairs and costs of mergers from single rows to one cluster, with sweeps in between."""
    descent = descent_by_squares(RowsFrame(X, w, n_threads))
    descent.start()
    for part in (0.5, 0.3, 0.02, 0.02, 0.5):
        descent.merge(int(part * descent.sweep.k))
        descent.run_lloyd(2)
    descent.merge(descent.sweep.k - 1)
    return [np.concatenate(column) for column in zip(*descent.mergers, strict=True)]


@pytest.mark.parametrize(("kind", "seed"), [*((kind, 0) for kind in KINDS), *LATTICES])
def test_mergers_in_many_columns(kind, seed):
    """In many columns distances of unions are updated, in few ones they are computed again.

    The mergers and their costs have the same bits, whatever is nearly equal. Columns of zeros
    change no distance.
    """
    X, w = rows_to_merge(kind, 400, seed)
    pairs, costs = all_mergers(X, w, 1)
    wide_pairs, wide_costs = all_mergers(np.hstack([X, np.zeros((len(X), 16), X.dtype)]), w, 1)
    np.testing.assert_array_equal(wide_pairs, pairs)
    np.testing.assert_array_equal(wide_costs, costs)


@pytest.mark.parametrize("columns", [4, 20])
def test_mergers_by_threads(columns):
    X, w = rows_to_merge("grid", 600)
    X = np.tile(X, columns // 4)
    assert 600 * 600 * columns > 1 << 20  # enough work for threads
    pairs, costs = all_mergers(X, w, 1)
    shared_pairs, shared_costs = all_mergers(X, w, 3)
    np.testing.assert_array_equal(shared_pairs, pairs)
    np.testing.assert_array_equal(shared_costs, costs)


def test_powers_are_not_fitted_where_the_number_is_sure(monkeypatch):
    """Skewed columns are still named, when they are asked for."""
    rng = np.random.default_rng(0)
    X = 100.0 * rng.integers(3, size=(300, 1)) + rng.normal(size=(300, 3))
    X[:, 2] = rng.exponential(size=300)
    with monkeypatch.context() as patched:
        patched.setattr(columns, "fit_powers", None)
        path = cluster_path(X, random_state=0)
    assert path.best == 3
    assert path.confidence > 0.95
    kept = pickle.loads(pickle.dumps(path))
    assert path.skewed.tolist() == kept.skewed.tolist() == [2]


@pytest.mark.parametrize("seed", range(5))
def test_distinct_values_of_equal_weights(seed):
    """Rows of equal weight are sorted in another way than others."""
    rng = np.random.default_rng(seed)
    column = rng.integers(-9, 9, size=200) * 0.1 + 1e-9 * rng.normal(size=200)
    equal = columns.distinct_values(column, np.full(200, 0.25))
    weight = np.full(200, 0.25)
    weight[0] += 1e-9
    other = columns.distinct_values(column, weight)
    np.testing.assert_array_equal(equal.value, other.value)
    np.testing.assert_allclose(equal.weights, other.weights, atol=1e-8)
