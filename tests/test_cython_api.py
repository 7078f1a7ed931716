"""The C-level functions: bits of the estimators; C++, numba and threads; wrong arguments."""

import re
import shutil
import subprocess
import sys
import sysconfig
import warnings
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import c_functions as c
import numpy as np
import pytest
from c_functions import OUTCOME

import smallvar
from smallvar import DPMeans, DynamicMeans, cython_api

KINDS = ("general", "whole numbers", "few values", "clusters", "far from 0", "one value")


def table(kind, rng):
    """Some rows, float32 or float64."""
    n, d = int(rng.integers(1, 100)), int(rng.integers(1, 9))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4)
    if kind == "whole numbers":
        X = np.round(X)
    elif kind == "few values":
        X = rng.integers(0, 3, size=(n, d)).astype(float)
    elif kind == "clusters":
        X = rng.normal(size=(n, d)) + 6 * rng.integers(0, 4, size=(n, 1))
    elif kind == "far from 0":
        X = rng.normal(size=(n, d)) + 1e6
    elif kind == "one value":
        X = np.full((n, d), 0.1)
    return X.astype(rng.choice([np.float32, np.float64]))


def weights(n, rng):
    """None, or weights of several kinds, some of them 0."""
    match rng.integers(6):
        case 0:
            return rng.random(n) + 0.1
        case 1:
            return np.append(rng.integers(0, 3, size=n - 1).astype(float), 1.0)
        case 2:
            return np.ones(n)
        case 3:
            return 10.0 ** rng.integers(-6, 7, size=n)
        case _:
            return None


def same_as_the_estimator(X, lam, delayed, cap, max_iter, weight):
    """The fitted DPMeans, of which dp_means has all results."""
    settings = {"delayed": delayed, "cap": cap, "max_iter": max_iter, "weight": weight}
    outcome, labels, centers, objective, n_iter = c.dp_means(X, lam, **settings)
    algorithm = "delayed" if delayed else "serial"
    model = DPMeans(lam=lam, algorithm=algorithm, max_clusters=cap or None, max_iter=max_iter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is in the outcome
        model.fit(X, sample_weight=weight)
    assert outcome in (OUTCOME.OK, OUTCOME.NOT_CONVERGED)
    assert np.array_equal(labels, model.labels_)
    assert np.array_equal(centers, model.cluster_centers_)
    assert (objective, n_iter) == (model.objective_, model.n_iter_)
    return model


@pytest.mark.smoke
@pytest.mark.parametrize("kind", KINDS)
def test_dp_means_is_the_estimator(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(150):
        X = table(kind, rng)
        weight = weights(len(X), rng)
        lam = float(max(X.var() * X.shape[1] * 10.0 ** rng.uniform(-2, 1), 1e-12))
        delayed, cap = bool(rng.integers(2)), int(rng.choice([0, 0, 1, 2, 5]))
        max_iter = int(rng.choice([1, 2, 3, 300]))
        settings = {"delayed": delayed, "cap": cap, "max_iter": max_iter, "weight": weight}
        model = same_as_the_estimator(X, lam, **settings)
        outcome, labels, _ = c.nearest_centers(X, model.cluster_centers_)
        assert outcome == OUTCOME.OK
        assert np.array_equal(labels, model.predict(X))


@pytest.mark.parametrize("kind", KINDS[:5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sweeps_by_bounds_are_the_estimator(kind, dtype):
    """From 100,000 distances on sweeps are by bounds: fits cross that number as clusters open."""
    rng = np.random.default_rng(KINDS.index(kind))
    crossed = 0
    for delayed, cap, max_iter, weighted in (
        *((False, 0, 300, False), (False, 0, 1, True), (False, 60, 300, False)),
        *((True, 70, 300, False), (True, 80, 300, True), (True, 0, 2, False)),
    ):
        n, d = int(rng.integers(1500, 3500)), int(rng.integers(2, 6))
        X = rng.normal(size=(n, d)) + (1e4 if kind == "far from 0" else 0.0)
        if kind == "whole numbers":
            X = np.round(3 * X)
        elif kind == "few values":
            X = rng.integers(0, 5, size=(n, d)).astype(float)
        elif kind == "clusters":
            X += 6 * rng.integers(0, 9, size=(n, d))
        X = X.astype(dtype)
        weight = rng.integers(0, 3, size=n).astype(float) if weighted else None
        lam = float(X.var(axis=0).sum() * 0.05)
        settings = {"delayed": delayed, "cap": cap, "max_iter": max_iter, "weight": weight}
        centers = same_as_the_estimator(X, lam, **settings).cluster_centers_
        crossed += n * len(centers) > 100_000
        if cap == 0 and len(centers) > 9:
            small = c.dp_means(X, lam, capacity=len(centers) // 2, **settings)
            assert small[0] == OUTCOME.FULL
        some = np.unique(X[:200].astype(float), axis=0)
        outcome, labels, squares = c.nearest_centers(X, some)
        assert outcome == OUTCOME.OK
        exact = np.zeros((n, len(some)))
        for j in range(d):  # in the order of the columns
            exact += np.square(X[:, j, np.newaxis].astype(float) - some[:, j])
        assert np.array_equal(labels, exact.argmin(axis=1))
        assert np.array_equal(squares, exact.min(axis=1))
    assert crossed >= 3


def test_nearest_of_many_rows_of_any_size():
    """Numbers beyond the range of approximate distances are compared exactly; then refused."""
    X = np.append(np.zeros(60_000), [1e145, 2e145]).reshape(-1, 1)
    outcome, labels, squares = c.nearest_centers(X, np.array([[0.0], [1e145]]))
    assert outcome == OUTCOME.OK
    assert labels[-2:].tolist() == [1, 1] and not labels[:-2].any()
    assert squares[-2:].tolist() == [0.0, 1e145**2]
    X[-1] = 1e200
    assert c.nearest_centers(X, np.array([[0.0], [1e145]]))[0] == OUTCOME.OUT_OF_RANGE


def test_nearest_centers_by_hand():
    X = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]])
    centers = np.array([[0.0, 0.0], [2.0, 0.0]])
    outcome, labels, squares = c.nearest_centers(X, centers)
    assert outcome == OUTCOME.OK
    assert labels.tolist() == [0, 1, 0]  # the last row is as far from both: the first one
    assert squares.tolist() == [0.0, 17.0, 1.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_means_of_labels(dtype):
    """Means are those of exact sums, in any order of the rows; a label without rows has none."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(500, 3)) * 10.0 ** rng.integers(-8, 8, size=(500, 1))).astype(dtype)
    labels = rng.integers(-1, 4, size=500)
    labels[labels == 2] = 3
    weight = rng.integers(0, 4, size=500) / 4
    outcome, means, sums = c.means_of_labels(X, labels, 5, weight)
    assert outcome == OUTCOME.OK
    assert np.isnan(means[[2, 4]]).all() and sums[[2, 4]].tolist() == [0.0, 0.0]
    for k in (0, 1, 3):
        rows = np.flatnonzero(labels == k)
        for j in range(3):
            total = sum(Fraction(weight[i]) * Fraction(float(X[i, j])) for i in rows)
            mean = float(total / sum(map(Fraction, weight[rows])))
            largest = np.abs(X[rows, j]).max()
            assert abs(means[k, j] - mean) <= 2.0**-50 * largest
    order = rng.permutation(500)
    again = c.means_of_labels(X[order].copy(), labels[order], 5, weight[order].copy())
    assert np.array_equal(again[1], means, equal_nan=True)


def test_rows_of_a_wider_array():
    wide = np.random.default_rng(0).normal(size=(60, 7))
    X = wide[::2, 1:4]
    outcome, labels, centers, *_ = c.dp_means(X, 2.0)
    same = c.dp_means(X.copy(), 2.0)
    assert outcome == OUTCOME.OK
    assert np.array_equal(labels, same[1]) and np.array_equal(centers, same[2])


@pytest.mark.smoke
def test_dynamic_means_is_the_estimator():
    rng = np.random.default_rng(0)
    for _ in range(60):
        d, lam = int(rng.integers(1, 6)), float(10.0 ** rng.uniform(-1, 1.5))
        q, tau = float(lam * rng.choice([0, 0.1, 0.3, 1.5])), float(rng.choice([0, 0.1, 1]))
        max_iter = int(rng.choice([1, 2, 300]))
        ours = c.DynamicMeans(d, lam, q, tau)
        model = DynamicMeans(lam=lam, q=q, tau=tau, n_init=1, max_iter=max_iter)
        places = rng.normal(size=(5, d)) * 4
        for _ in range(8):
            n = int(rng.integers(1, 80)) if rng.random() > 0.1 else 0
            X = places[rng.integers(5, size=n)] + rng.normal(size=(n, d)) * 0.4
            X = (np.round(X) if rng.random() < 0.3 else X).astype(rng.choice(["f4", "f8"]))
            places += rng.normal(size=places.shape) * 0.2
            weight = rng.random(n) + 0.1 if n and rng.random() < 0.4 else None
            elapsed = int(rng.choice([1, 1, 2, 5]))
            _outcome, ids, objective, n_iter = ours.step(X, weight, elapsed, max_iter)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.partial_fit(X, sample_weight=weight, elapsed=elapsed)
            assert np.array_equal(ids, model.labels_)
            assert (objective, n_iter) == (model.objective_, model.n_iter_)
            expected = model.cluster_ids_, model.cluster_centers_, model.weights_, model.ages_
            for got, wanted in zip(ours.clusters(), expected, strict=True):
                assert np.array_equal(got, wanted)
        ours.free()


# ---- wrong arguments -----------------------------------------------------------------------------

X = np.array([[0.0, 0.0], [1.0, 0.0], [9.0, 9.0]])
BAD_DP_MEANS = {
    "n": ({"n": 0}, OUTCOME.BAD_SIZE),
    "d": ({"d": 0}, OUTCOME.BAD_SIZE),
    "stride": ({"stride": 1}, OUTCOME.BAD_SIZE),
    "x": ({"x": None}, OUTCOME.BAD_SIZE),
    "labels": ({"labels": None}, OUTCOME.BAD_SIZE),
    "centers": ({"centers": None}, OUTCOME.BAD_SIZE),
    "n_clusters": ({"k": None}, OUTCOME.BAD_SIZE),
    "capacity": ({"capacity": 0}, OUTCOME.BAD_SIZE),
    "max_clusters": ({"cap": -1}, OUTCOME.BAD_SIZE),
    "max_iter": ({"max_iter": 0}, OUTCOME.BAD_SIZE),
    "lam": ({"lam": -1.0}, OUTCOME.BAD_VALUE),
    "lam 0": ({"lam": 0.0}, OUTCOME.BAD_VALUE),
    "lam NaN": ({"lam": np.nan}, OUTCOME.BAD_VALUE),
    "lam infinite": ({"lam": np.inf}, OUTCOME.BAD_VALUE),
    "n huge": ({"n": 2**62}, OUTCOME.BAD_SIZE),
    "n times stride": ({"n": 2**31, "stride": 2**31}, OUTCOME.BAD_SIZE),
    "d huge": ({"d": 2**62, "stride": 2**62}, OUTCOME.BAD_SIZE),
    "capacity huge": ({"capacity": 2**61}, OUTCOME.BAD_SIZE),
    "NaN": ({"data": [[0.0, np.nan]] * 3}, OUTCOME.BAD_VALUE),
    "infinite": ({"data": [[0.0, -np.inf]] * 3}, OUTCOME.BAD_VALUE),
    "large": ({"data": [[0.0, 1.0], [1e200, 0.0], [0.0, 0.0]]}, OUTCOME.OUT_OF_RANGE),
    "small": ({"data": [[0.0, 1e-200], [0.0, 0.0], [0.0, 0.0]]}, OUTCOME.OUT_OF_RANGE),
    "weight < 0": ({"weight": [1.0, -1.0, 1.0]}, OUTCOME.BAD_VALUE),
    "weight NaN": ({"weight": [1.0, np.nan, 1.0]}, OUTCOME.BAD_VALUE),
    "weights 0": ({"weight": [0.0, 0.0, 0.0]}, OUTCOME.BAD_VALUE),
    "weight large": ({"weight": [1.0, 1e200, 1.0]}, OUTCOME.OUT_OF_RANGE),
    "sums": ({"data": [[1e139, 0]] * 2 + [[0, 0]], "weight": [1, 1e90, 1]}, OUTCOME.OUT_OF_RANGE),
    "full": ({"capacity": 1}, OUTCOME.FULL),
    "enough": ({"capacity": 2}, OUTCOME.OK),
}


@pytest.mark.parametrize("name", BAD_DP_MEANS)
@pytest.mark.parametrize("single", [True, False])
def test_outcomes_of_dp_means(name, single):
    given, wanted = BAD_DP_MEANS[name]
    if single and wanted == OUTCOME.OUT_OF_RANGE and "data" in given:
        pytest.skip("float32 has no such numbers")
    dtype = np.float32 if single else np.float64
    data = np.array(given.get("data", X), dtype=dtype)
    weight = np.array(given["weight"], dtype=float) if "weight" in given else None
    labels, centers, k = np.empty(3, np.int32), np.empty((3, 2)), np.zeros(1, np.intp)
    arguments = {
        **{"x": c.address(data), "n": 3, "d": 2, "stride": 2, "weight": None, "lam": 4.0},
        **{"delayed": 0, "cap": 0, "max_iter": 300, "labels": c.address(labels)},
        **{"centers": c.address(centers), "capacity": 3, "k": c.address(k)},
        **{"objective": None, "n_iter": None},
    }
    arguments |= {key: value for key, value in given.items() if key != "data"}
    arguments["weight"] = c.address(weight)
    assert c.function("dp_means", single)(*arguments.values()) == wanted


def test_outcomes_of_the_others():
    centers = np.zeros((2, 2))
    assert c.nearest_centers(X, np.full((2, 2), np.inf))[0] == OUTCOME.BAD_VALUE
    assert c.nearest_centers(np.array([[np.nan, 0.0]]), centers)[0] == OUTCOME.BAD_VALUE
    assert c.nearest_centers(X, centers[:0])[0] == OUTCOME.BAD_SIZE
    assert c.nearest_centers(np.array([[1e200, 0.0]]), centers)[0] == OUTCOME.OUT_OF_RANGE
    assert c.means_of_labels(X, [0, 1, 2], 2)[0] == OUTCOME.BAD_VALUE
    assert c.means_of_labels(X, [0, 1, -2], 2)[0] == OUTCOME.BAD_VALUE
    assert c.means_of_labels(X, [0, 1, 1], 0)[0] == OUTCOME.BAD_SIZE


def test_sizes_whose_product_cannot_be_addressed():
    labels, means, one = np.zeros(3, np.int32), np.zeros((2, 2)), np.zeros(1)
    rows, huge = c.address(X), 2**62
    assert (
        c.function("nearest_centers", False)(
            *(rows, 3, huge, huge, c.address(means), 2, c.address(labels), None)
        )
        == OUTCOME.BAD_SIZE
    )
    assert (
        c.function("nearest_centers", False)(
            *(rows, huge, 2, 2, c.address(means), 2, c.address(labels), None)
        )
        == OUTCOME.BAD_SIZE
    )
    assert (
        c.function("means_of_labels", False)(
            *(rows, huge, 2, 2, None, c.address(labels), 2, c.address(means), None)
        )
        == OUTCOME.BAD_SIZE
    )
    state = c.DynamicMeans(2, 4.0, 0.5, 0.1)
    assert (
        c.function("dynamic_means_step", False)(
            *(state.state, rows, huge, 2, None, 1, 300, c.address(one), None, None)
        )
        == OUTCOME.BAD_SIZE
    )
    state.free()


@pytest.mark.parametrize(
    "arguments",
    [(0, 1.0, 0.1, 0.0), (2, 0.0, 0.1, 0.0), (2, 1.0, -0.1, 0.0), (2, 1.0, 0.0, np.inf)],
)
def test_a_state_that_cannot_be(arguments):
    assert c.function("dynamic_means_new")(*arguments) is None


def test_a_failed_step_leaves_the_state():
    ours = c.DynamicMeans(2, 4.0, 0.5, 0.1)
    assert ours.step(X)[0] == OUTCOME.OK
    before = ours.clusters()
    assert ours.step(np.array([[np.nan, 0.0]]))[0] == OUTCOME.BAD_VALUE
    assert ours.step(X, np.zeros(3))[0] == OUTCOME.BAD_VALUE
    assert ours.step(X, np.array([1.0, 1e-13, 1.0]))[0] == OUTCOME.OUT_OF_RANGE
    assert ours.step(X, elapsed=0)[0] == OUTCOME.BAD_SIZE
    assert ours.step(X, max_iter=0)[0] == OUTCOME.BAD_SIZE
    for got, wanted in zip(ours.clusters(), before, strict=True):
        assert np.array_equal(got, wanted)
    assert ours.clusters(1)[0].tolist() == [0]  # as many as there is memory for
    ours.free()
    assert c.function("dynamic_means_clusters")(None, 0, None, None, None, None) == -1
    ours.free()  # NULL is none


# ---- other callers -------------------------------------------------------------------------------


def test_threads_of_the_caller():
    """ctypes lets go of the GIL: calls run side by side, and none sees another one's memory."""
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=(400, 3)) for _ in range(40)]
    alone = [c.dp_means(X, 1.0) for X in tables]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda X: c.dp_means(X, 1.0), tables))
    for one, other in zip(alone, together, strict=True):
        assert np.array_equal(one[1], other[1]) and np.array_equal(one[2], other[2])
        assert one[3:] == other[3:]


CALLER = """
#include "smallvar.h"

extern "C" int count_groups(const double *x, Py_ssize_t n, Py_ssize_t d, double lam, int *labels,
                            double *objective)
{
    if (import_smallvar() < 0) return -100;
    double *centers = new double[n * d];
    Py_ssize_t k = 0;
    int outcome = smallvar_dp_means_d(x, n, d, d, NULL, lam, 1, 0, 300, labels, centers, n, &k,
                                      objective, NULL);
    delete[] centers;
    return outcome < 0 ? outcome : (int)k;
}
"""


def test_cpp_caller(tmp_path):
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None or sys.platform == "win32":
        pytest.skip("no C++ compiler at hand")
    source, library = tmp_path / "caller.cpp", tmp_path / "caller.so"
    source.write_text(CALLER)
    folders = smallvar.get_include(), sysconfig.get_path("include")
    if not Path(folders[1], "Python.h").exists():
        pytest.skip("Python's headers are not installed")
    flags = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    command = [
        compiler,
        "-shared",
        "-fPIC",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-variable",
        *flags,
    ]
    command += [*(f"-I{folder}" for folder in folders), str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    call = c.ctypes.PyDLL(str(library)).count_groups  # keeps the GIL, which the import needs
    call.argtypes = [c.ADDRESS, c.SIZE, c.SIZE, c.DOUBLE, c.ADDRESS, c.ADDRESS]
    data = np.random.default_rng(0).normal(size=(50, 2))
    labels, objective = np.empty(50, np.int32), np.zeros(1)
    k = call(c.address(data), 50, 2, 1.0, c.address(labels), c.address(objective))
    model = DPMeans(lam=1.0, algorithm="delayed").fit(data)
    assert k == model.n_clusters_ > 1
    assert np.array_equal(labels, model.labels_)
    assert objective[0] == model.objective_


def test_numba_caller():
    numba = pytest.importorskip("numba")
    dp_means = c.function("dp_means", single=False)

    @numba.njit
    def count_groups(tables, lam, labels, counts):
        n, d = tables.shape[1:]
        centers = np.empty((n, d))
        for t in range(len(tables)):
            outcome = dp_means(
                *(tables[t].ctypes.data, n, d, d, 0, lam, 0, 0, 300, labels[t].ctypes.data),
                *(centers.ctypes.data, n, counts[t : t + 1].ctypes.data, 0, 0),
            )
            if outcome < 0:
                return outcome
        return 0

    tables = np.random.default_rng(0).normal(size=(20, 50, 2))
    labels, counts = np.empty((20, 50), np.int32), np.zeros(20, np.intp)
    assert count_groups(tables, 1.0, labels, counts) == OUTCOME.OK
    for data, of_rows, k in zip(tables, labels, counts, strict=True):
        model = DPMeans(lam=1.0).fit(data)
        assert k == model.n_clusters_
        assert np.array_equal(of_rows, model.labels_)


# ---- what is declared ----------------------------------------------------------------------------


def header():
    """The C header, without comments."""
    text = Path(smallvar.get_include(), "smallvar.h").read_text(encoding="utf-8")
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def bare(type_):
    """A type without const and spaces."""
    return re.sub(r"\s|\bconst\b", "", type_)


def test_header_has_the_signatures_of_the_functions():
    declared = re.findall(r"static ([\w ]+\*?) ?\(\*smallvar_(\w+)\)\(([^)]*)\);", header())
    functions = {name for name in cython_api.__pyx_capi__ if name != "API_VERSION"}
    assert {name for _, name, _ in declared} == functions
    for result, name, arguments in declared:
        result_type, arguments_type = re.fullmatch(
            r"(.*?) ?\((.*)\)", c.capsule_of(name)[0]
        ).groups()
        named = [re.sub(r"(\w+)$", "", a.strip()) for a in arguments.split(",")]
        assert [bare(t) for t in named] == [bare(t) for t in arguments_type.split(",")], name
        assert bare(result) == bare(result_type), name


def test_outcomes_are_the_same_everywhere():
    numbers = {
        name: int(value) for name, value in re.findall(r"SMALLVAR_(\w+) = (-?\d+)", header())
    }
    assert numbers == {outcome.name: outcome.value for outcome in OUTCOME}
    stub = Path(cython_api.__file__).with_name("cython_api.pyi").read_text(encoding="utf-8")
    assert numbers == {name: int(value) for name, value in re.findall(r"    (\w+) = (-?\d+)", stub)}
