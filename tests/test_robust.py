"""Nothing breaks it: loops that end, parameters at the edge of what floats hold, interruptions."""

import ctypes
import os
import pickle
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from copy import deepcopy
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from helpers import never_rises
from models import MODELS, made, with_seed
from scipy.linalg import LinAlgError
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from smallvar._sweeps.gaussians import inverse_roots
from smallvar._sweeps.merge import MergeSweep

import smallvar
from smallvar import BPMeans, BregmanDPMeans, DPMeans, HDPMeans, KernelDPMeans
from smallvar._centers.divergence_rules import DIVERGENCES
from smallvar._core import config, linear_algebra
from smallvar._core.estimator import _changing
from smallvar._core.frame import RowsFrame
from smallvar._core.linear_algebra import eigh, stoppable

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
each_algorithm = pytest.mark.parametrize("algorithm", ["serial", "delayed", "collapsed", "merge"])
may_warn = pytest.mark.filterwarnings("ignore::UserWarning")


def rows(n=40, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) + 5.0


# Loops


@pytest.mark.parametrize("algorithm", ["sweep", "collapsed"])
@pytest.mark.parametrize("init", ["mean", "data"])
@pytest.mark.parametrize(
    ("X", "lam"),
    [
        (np.array([[0.6, 0.3], [0, 1e14], [0.8, 0.9]]), 0.5),
        (rows(), 1e-300),
        (rows(), 1e-30),
        (rows() * 1e8, 1e-3),
    ],
)
def test_features_opened_over_roundings_come_to_an_end(X, lam, init, algorithm):
    options = {"max_iter": 5, "algorithm": algorithm, "init": init, "n_init": 1}
    for seed in range(5):
        for n_swaps in (0, 3):  # each swap may be followed by as many sweeps again
            model = BPMeans(lam=lam, n_swaps=n_swaps, random_state=seed, **options)
            assert model.fit(X).n_iter_ <= (1 + n_swaps) * (5 + len(X))
            assert np.isfinite(model.objective_)


@pytest.mark.parametrize("algorithm", ["sweep", "collapsed"])
def test_rows_that_are_nothing_beside_another_open_no_features(algorithm):
    """Their squares exceed lam, and are lost in what the objective may be off."""
    X = np.outer(np.r_[:39.0, 39e14], np.ones(5))
    model = BPMeans(lam=0.25, algorithm=algorithm, n_init=1, random_state=2).fit(X)
    assert (model.n_components_, model.objective_) == (1, 0.25)
    assert model.n_iter_ <= 50  # with 20 swaps


@pytest.mark.parametrize(
    "model",
    [
        DPMeans(lam=1e-30, max_iter=5),
        DPMeans(lam=1e-30, max_iter=5, algorithm="delayed"),
        DPMeans(lam=1e-30, max_iter=5, algorithm="collapsed"),
        BregmanDPMeans(lam=1e-30, max_iter=5),
        BregmanDPMeans(lam=1e-30, max_iter=5, algorithm="collapsed"),
        KernelDPMeans(lam=1e-30, max_iter=5),
        KernelDPMeans(lam=1e-30, max_iter=5, algorithm="collapsed"),
        HDPMeans(lam_local=1e-30, lam_global=1e-30, max_iter=5),
    ],
    ids=lambda model: f"{type(model).__name__}-{getattr(model, 'algorithm', '')}",
)
@pytest.mark.parametrize("X", [rows(), rows() * [1, 1e-9, 1e9], rows() + 1e13])
def test_clusters_opened_over_roundings_come_to_an_end(model, X):
    assert model.fit(X).n_iter_ <= 5 + len(X)


# Parameters

VARIANTS = {
    "DPMeans-merge": DPMeans(algorithm="merge", random_state=0),
    "DynamicMeans": smallvar.DynamicMeans(lam=0.5, t_q=6.8, k_tau=1.01, random_state=0),
    "DynamicMeans-q": smallvar.DynamicMeans(lam=0.5, q=0.1, tau=0.1, random_state=0),
    "HDPMeans": HDPMeans(lam_local=0.5, lam_global=0.5, random_state=0),
    "KernelDPMeans": KernelDPMeans(lam=0.1, gamma=0.1, random_state=0),
    "KernelDynamicMeans": smallvar.KernelDynamicMeans(lam=0.1, gamma=0.1, random_state=0),
    "KernelHDPMeans": smallvar.KernelHDPMeans(
        lam_local=0.1, lam_global=0.1, gamma=0.1, random_state=0
    ),
    "MahalanobisMeans-lam": smallvar.MahalanobisMeans(
        volume="clusters", lam=5.0, scale=2.0, reg_covar=1.0, random_state=0
    ),
    "RobustDPMeans": smallvar.RobustDPMeans(lam=2000.0, price=3.0, random_state=0),
    "SpectralDPMeans": smallvar.SpectralDPMeans(lam=5.0, kernel="rbf", gamma=0.1, random_state=0),
    "SpectralDynamicMeans": smallvar.SpectralDynamicMeans(lam=0.1, gamma=0.1, random_state=0),
    "SphericalDPMeans": smallvar.SphericalDPMeans(min_cosine=0.99, random_state=0),
    "SphericalDPMeans-lam": smallvar.SphericalDPMeans(lam=0.1, random_state=0),
}
# tables are in test_mixed.py
ESTIMATORS = {name: made(name) for name in MODELS if name != "MixedDPMeans"} | VARIANTS
each_estimator = pytest.mark.parametrize("key", ESTIMATORS)


def data_for(model, n=30):
    """Rows, or the graph that PenalizedCut takes."""
    X = rows(n)
    if type(model).__name__ != "PenalizedCut":
        return X
    return np.exp(-np.square(X[:, None] - X).sum(axis=2))


def numbers(model):
    """The parameters that are numbers now or by their documentation."""
    return [
        name
        for name, value in model.get_params().items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "verbose"
    ]


CASES = [
    pytest.param(model, name, id=f"{key}-{name}")
    for key, model in ESTIMATORS.items()
    for name in [*numbers(model), "n_threads", "max_clusters", "random_state"]
    if name in model.get_params()
]


def same_state(one, two):
    return pickle.dumps(vars(one)) == pickle.dumps(vars(two))


BEYOND = [
    10**30,
    10**400,
    -(10**400),
    10**5000,
    Fraction(10**400),
    np.longdouble("1e4000"),
    np.longdouble("1e-4000"),
    Fraction(1, 10**400),
]


@may_warn
@pytest.mark.parametrize(("model", "name"), CASES)
def test_a_number_beyond_the_range_of_c_is_refused_by_name(model, name):
    named = "Seed|random" if name == "random_state" else name.replace("scale", "lam|scale")
    X = data_for(model)
    whole = isinstance(model.get_params()[name], (int, type(None)))
    model = clone(model).fit(X)
    for value in BEYOND:
        model.set_params(**{name: value})
        before = deepcopy(model)
        if abs(value) < 1e300 and not whole:
            try:
                model.fit(X)
            except (ValueError, TypeError) as error:
                message = str(error)
            else:
                continue
        else:
            with pytest.raises((ValueError, TypeError)) as caught:
                model.fit(X)
            message = str(caught.value)
        assert re.search(named, message), message
        assert same_state(model, before)


@may_warn
@pytest.mark.parametrize(("model", "name"), CASES)
def test_any_number_is_a_number(model, name):
    """With its value as a Python number the result is the same."""
    X = data_for(model)
    value = model.get_params()[name]
    whole = isinstance(value, int) or name in ("n_threads", "max_clusters", "random_state")
    value = (value or 2) if whole else 0.0 if name == "min_cosine" else 2.0
    if name == "max_memory":  # trackers hold the kernel of a step
        value = 2.0**20
    expected = clone(model).set_params(**{name: value}).fit(X)
    for kind in (np.int64, np.uint16) if whole else (Fraction, np.float32, np.longdouble, int):
        found = clone(model).set_params(**{name: kind(value)}).fit(X)
        for attribute in ("labels_", "objective_", "n_iter_", "assignments_", "cluster_centers_"):
            if hasattr(expected, attribute):
                assert np.array_equal(getattr(found, attribute), getattr(expected, attribute))


def test_a_penalty_that_vanishes_in_float64():
    """Its tables once overflowed: 0 stood for a local cluster that is there already."""
    tiny = np.longdouble("1e-4000")
    X = rows(400)
    with pytest.raises(ValueError, match="lam_local must be > 0, got 1e-4000"):
        HDPMeans(lam_local=tiny, lam_global=1e-9).fit(X)
    with pytest.raises(ValueError, match="lam_global must be > 0, got 1e-4000"):
        HDPMeans(lam_local=1e-9, lam_global=tiny).fit(X)
    model = HDPMeans(lam_local=5e-324, lam_global=5e-324).fit(X)
    assert np.isfinite(model.objective_)


# Learned arrays that were replaced

LEARNED = {
    "BPMeans": ["components_"],
    "BregmanDPMeans": ["cluster_centers_"],
    "DPMeans": ["cluster_centers_"],
    "DynamicMeans": ["cluster_centers_", "weights_", "ages_"],
    "HDPMeans": ["cluster_centers_"],
    "KFeatures": ["components_"],
    "MahalanobisMeans": ["cluster_centers_", "covariances_"],
    "MiniBatchDPMeans": ["cluster_centers_", "cluster_weights_"],
    "SegmentMeans": ["cluster_centers_"],
    "SphericalDPMeans": ["cluster_centers_", "resultant_lengths_"],
}
USES = {
    "weights_": ["partial_fit"],
    "cluster_weights_": ["partial_fit"],
    "resultant_lengths_": ["partial_fit"],
    "ages_": ["predict", "partial_fit"],
}


def result_of(model):
    """What two equal fits have equal: the objective or, where there is none, labels."""
    return model.objective_ if hasattr(model, "objective_") else model.labels_


CHANGES = {
    "twice": lambda a: np.concatenate([a, a, a, a]),
    "none": lambda a: a[:0],
    "wide": lambda a: np.hstack([a] * 50) if a.ndim == 2 else a[:, None],
    "narrow": lambda a: a[:, :1] if a.ndim == 2 else a[0],
    "flat": lambda a: a.ravel() if a.ndim == 2 else np.array([[a]]),
    "words": lambda a: np.full(a.shape, "x"),
    "nan": lambda a: np.full(a.shape, np.nan),
}


@pytest.mark.parametrize("key", ["KernelDPMeans", "KernelHDPMeans", "SpectralDPMeans"])
def test_parameters_of_the_kernel_that_were_replaced(key):
    model, X = clone(ESTIMATORS[key]).fit(rows()), rows()
    for name, value in {
        "max_memory": np.zeros(0),
        "gamma": "x",
        "kernel": 3,
    }.items():
        if name in model.get_params():
            other = deepcopy(model).set_params(**{name: value})
            before = deepcopy(other)
            for method in ("predict", "transform", "score"):
                if hasattr(model, method):
                    with pytest.raises((ValueError, TypeError), match=f"^{name} must"):
                        getattr(other, method)(X)
            assert same_state(other, before)


def test_a_precomputed_kernel_that_is_none_later():
    model = KernelDPMeans(lam=0.5, kernel="precomputed").fit(np.eye(5))
    with pytest.raises(ValueError, match="kernel must stay what it was in fit, 'precomputed'"):
        model.set_params(kernel="linear").predict(np.eye(5))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("key", LEARNED)
def test_replaced_arrays_are_refused(key, change):
    X = rows(60)
    fitted = ESTIMATORS[key].fit(X)
    for name in LEARNED[key]:
        free = name in ("cluster_centers_",) and key not in ("DynamicMeans",)
        if free and change == "twice":
            continue  # as many centers as one likes
        for method in USES.get(name, ["predict", "transform", "score", "partial_fit"]):
            model = deepcopy(fitted)
            setattr(model, name, CHANGES[change](np.asarray(getattr(model, name))))
            if not hasattr(model, method):
                continue
            before = deepcopy(model)
            with pytest.raises(ValueError, match=rf"{name} must (be|have shape)"):
                getattr(model, method)(X)
            assert same_state(model, before)


@pytest.mark.filterwarnings("ignore")
@each_estimator
def test_replaced_arrays_crash_nothing(key):
    """What numpy alone sees may raise what it likes, or fit by chance."""
    X = data_for(ESTIMATORS[key])
    fitted = ESTIMATORS[key].fit(X)
    for name, value in list(vars(fitted).items()):
        if not isinstance(value, np.ndarray) or not name.endswith("_"):
            continue
        for change in CHANGES.values():
            for method in ("predict", "transform", "score", "partial_fit"):
                model = deepcopy(fitted)
                try:
                    setattr(model, name, change(value))
                    getattr(model, method)(X)
                except (ValueError, TypeError, IndexError, AttributeError):
                    pass
        model.fit(X)
        assert np.array_equal(result_of(model), result_of(fitted))


# Warnings as errors


def warned(model, X, method="fit"):
    """The warning of a fit that is an error, the estimator as before; None if there is none."""
    before = deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            getattr(model, method)(X)
        except Warning as warning:
            assert same_state(model, before)
            return warning
    return None


SLOW_TO_CONVERGE = [
    key
    for key, model in ESTIMATORS.items()
    if "max_iter" in model.get_params()
    and key not in ("MiniBatchDPMeans", "DPMeans-merge", "MahalanobisMeans-lam", "SphericalDPMeans")
]


@may_warn
@pytest.mark.parametrize("key", SLOW_TO_CONVERGE)
def test_a_warning_that_is_an_error_leaves_the_estimator_as_it_was(key):
    first = data_for(ESTIMATORS[key])
    fitted = clone(ESTIMATORS[key]).fit(first)
    seen = []
    for seed in range(3):
        X = np.random.default_rng(seed).uniform(size=(200, 2))
        if key == "PenalizedCut":
            X = np.exp(-40 * np.square(X[:, None] - X).sum(axis=2)) * (1 - np.eye(200))
        for model in (clone(ESTIMATORS[key]), deepcopy(fitted)):
            model.set_params(max_iter=1)
            if "random_state" in model.get_params():
                model.set_params(random_state=seed)
            for name in {"lam", "lam_local", "lam_global"} & set(model.get_params()):
                if key not in ("PenalizedCut", "MahalanobisMeans"):
                    model.set_params(**{name: 0.02})
            if key == "MahalanobisMeans":
                model.set_params(n_clusters=9, init="k-means++")
            if hasattr(model, "n_features_in_"):
                model.fit(np.vstack([X] if key == "PenalizedCut" else [X, X]))
            seen.append(warned(model, X))
            if hasattr(model, "partial_fit"):
                seen.append(warned(model.partial_fit(X[:9]), X, "partial_fit"))
    told = [str(warning) for warning in seen if isinstance(warning, ConvergenceWarning)]
    assert told and all(re.search(r"max_iter=1 .*; increase max_iter", text) for text in told)


@pytest.mark.parametrize(
    ("model", "X"),
    [
        (DPMeans(lam=40.0), np.repeat([[0.0], [1.0]], 200, axis=0) * 12.0),
        (KernelDPMeans(lam=0.5, kernel="sigmoid", gamma=1.0), rows() - 5.0),
        (smallvar.PenalizedCut(lam=5.0), data_for(smallvar.PenalizedCut())),
        (smallvar.MahalanobisMeans(volume="clusters", lam=50.0, scale=1.0, reg_covar=1.0), rows()),
    ],
    ids=["one cluster is left", "indefinite", "useless", "no effect"],
)
def test_other_warnings_that_are_errors(model, X):
    assert isinstance(warned(model, X), UserWarning)


# Weights far apart


@pytest.mark.parametrize(
    ("model", "bound"),
    [
        (DPMeans(lam=0.5, algorithm="collapsed"), 1e12),
        (DPMeans(lam=0.5, algorithm="merge"), 1e12),
        (BregmanDPMeans(lam=0.5, algorithm="collapsed"), 1e12),
        (BregmanDPMeans(lam=0.5, divergence="kl", algorithm="collapsed"), 1e12),
        (KernelDPMeans(lam=0.5, algorithm="collapsed"), 1e6),
    ],
    ids=["dp", "merge", "bregman", "kl", "kernel"],
)
def test_collapsed_sweeps_want_weights_of_some_size(model, bound):
    X = np.abs(rows())
    for seed in range(10):
        rng = np.random.default_rng(seed)
        weight = bound ** rng.uniform(-1, 0, size=len(X))
        weight[:3] = 0.0, 1.0, 1.0 / bound
        model.set_params(lam=0.5 * bound ** -rng.uniform(0, 1)).fit(X, sample_weight=weight)
        assert never_rises(model.objective_path_)
    with pytest.raises(
        ValueError, match=rf"sample_weight must have a ratio .* {bound:.0e}".replace("+", r"\+")
    ):
        model.fit(X, sample_weight=np.where(weight == 1.0, 3.0, weight))
    serial = clone(model).set_params(algorithm="serial")
    path = serial.fit(X, sample_weight=1e20 ** rng.uniform(-1, 0, size=len(X))).objective_path_
    assert np.all(np.diff(path) <= 1e-6 * path[:-1])


# Threads


@pytest.mark.filterwarnings("ignore")
@each_estimator
def test_one_object_in_two_threads_is_refused_or_works(key):
    model, X = clone(ESTIMATORS[key]), data_for(ESTIMATORS[key], 200)
    expected = clone(model).fit(X)
    start, done = threading.Barrier(4), []

    def fit():
        start.wait()
        for _ in range(5):
            try:
                done.append(model.fit(X) is model)
            except RuntimeError as error:
                done.append("is being fitted in another thread" in str(error))

    threads = [threading.Thread(target=fit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 20
    assert np.array_equal(result_of(model.fit(X)), result_of(expected))


def test_an_object_that_is_being_fitted_in_another_thread():
    inside, leave = threading.Event(), threading.Event()

    def kernel(A, B):
        inside.set()
        leave.wait()
        return A @ B.T

    model, other_model = KernelDPMeans(lam=1.0, kernel=kernel), DPMeans(lam=0.5)
    thread = threading.Thread(target=model.fit, args=(rows(),))
    thread.start()
    inside.wait()
    with pytest.raises(RuntimeError, match="this KernelDPMeans is being fitted in another thread"):
        model.fit(rows())
    other_model.fit(rows())
    leave.set()
    thread.join()
    assert hasattr(model.fit(rows()), "labels_")


# LAPACK that can be stopped


@pytest.mark.parametrize("n", [1, 5, 60, 520])
def test_eigenpairs_are_those_of_scipy(n):
    A = np.random.default_rng(n).normal(size=(n, n))
    K = A @ A.T
    for found, expected in (
        (eigh(K, above=n), scipy.linalg.eigh(K, subset_by_value=(n, np.inf))),
        (eigh(K, above=1e9), (np.empty(0), np.empty((n, 0)))),
        (eigh(K, largest=1), scipy.linalg.eigh(K, subset_by_index=(n - 1, n - 1))),
        (eigh(K), scipy.linalg.eigh(K)),
    ):
        assert found[0].shape == expected[0].shape
        assert found[1].shape == expected[1].shape
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)
        np.testing.assert_allclose(K @ found[1], found[1] * found[0], atol=1e-9 * n)


def test_an_error_while_it_is_waited_for():
    with pytest.raises(LinAlgError):
        stoppable(np.linalg.inv, np.zeros((3, 3)))


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), None])
def test_without_another_thread(error, monkeypatch):
    """As where there is no memory for one, or for its first call."""

    def start(function, args):
        if error is not None:
            raise error

    monkeypatch.setattr(linear_algebra._thread, "start_new_thread", start)
    assert stoppable(np.linalg.det, np.eye(3)) == 1.0


@pytest.mark.parametrize(
    ("call", "routine"),
    [
        (lambda X: smallvar.SegmentMeans(lam=9.0).fit(X), np.linalg.eigvalsh),
        (lambda X: smallvar.hdp_bound(X, None, 9.0, 9.0), np.linalg.svd),
        (lambda X: smallvar.match_clusters(np.ones(600), rows(600, 600) - 9.0), linprog),
    ],
)
def test_large_problems_can_be_waited_for(call, routine, monkeypatch):
    called = []

    def run(function, *args, **options):
        called.append(function)
        return function(*args, **options)

    monkeypatch.setattr(linear_algebra, "stoppable", run)
    call(np.repeat(rows(60, 520), 10, axis=0))
    assert routine in called


# Interruptions


def graph(n, neighbors=8):
    """A sparse graph whose nodes are linked at random, with a bit of structure."""
    rng = np.random.default_rng(0)
    one = np.repeat(np.arange(n), neighbors)
    two = (one + rng.integers(1, 50, size=len(one)) ** 2) % n
    A = scipy.sparse.coo_array((rng.random(len(one)), (one, two)), shape=(n, n)).tocsr()
    return A + A.T


SENDER = """
import os, signal, sys, time
pid, clock = int(sys.argv[1]), (~int(sys.argv[1]) << 3) | 2  # the clock of what it computes
for line in sys.stdin:
    time.sleep(float(line))
    print(time.clock_gettime(clock), flush=True)
    os.kill(pid, signal.SIGINT)
"""
MOMENTS = 7  # for each of LONG: 200 and more in all


def in_groups(n, d):
    return {"X": rows(n, d), "groups": np.arange(n) % 20}


# calls that take seconds: there are large data, many clusters, and many starts of few rows
BP, KERNEL, N = BPMeans, KernelDPMeans, 10**4
LONG = {
    name: (with_seed(name, **model.long), "fit", lambda shape=model.shape: np.abs(rows(*shape)))
    for name, model in MODELS.items()
} | {
    "BPMeans-collapsed": (
        BP(lam=0.5, n_init=N, algorithm="collapsed"),
        "fit",
        lambda: rows(3000, 8),
    ),
    "BPMeans-stepwise": (
        BP(lam=2.0, n_init=N, algorithm="stepwise"),
        "fit",
        lambda: rows(20000, 8),
    ),
    "BPMeans-swaps": (BP(lam=2.0, n_init=N, n_swaps=3), "fit", lambda: rows(5000, 12)),
    "BPMeans-transform": (BP(lam=0.1), "transform", lambda: rows(3 * 10**6)),
    "BregmanDPMeans": (
        BregmanDPMeans(lam=1e-5, divergence="kl", n_init=N),
        "fit",
        lambda: np.abs(rows(10**5, 8)),
    ),
    "BregmanDPMeans-collapsed": (
        BregmanDPMeans(lam=1e-3, divergence="kl", algorithm="collapsed", n_init=N),
        "fit",
        lambda: np.abs(rows(10**4, 4)),
    ),
    "BregmanDPMeans-merge": (
        BregmanDPMeans(divergence="itakura_saito", n_init=N),
        "fit",
        lambda: np.abs(rows(10**5, 4)) + 0.1,
    ),
    "DPMeans-wide": (DPMeans(lam=60.0, n_init=N), "fit", lambda: rows(30000, 128)),
    "DPMeans-delayed": (DPMeans(lam=0.01, algorithm="delayed"), "fit", lambda: rows(10**6)),
    "DPMeans-collapsed": (
        DPMeans(lam=0.01, algorithm="collapsed", n_init=N),
        "fit",
        lambda: rows(2 * 10**5),
    ),
    "DPMeans-auto": (DPMeans(n_init=N), "fit", lambda: rows(3 * 10**5, 8)),
    "DPMeans-merge": (DPMeans(lam=5e-4, algorithm="merge"), "fit", lambda: rows(2 * 10**5, 2)),
    "DPMeans-predict": (DPMeans(lam=1e-3), "predict", lambda: np.tile(rows(10**5), (300, 1))),
    "DPMeans-transform": (
        DPMeans(lam=1e-3),
        "transform",
        lambda: np.broadcast_to(rows(1, 4000), (2 * 10**5, 4000)),
    ),
    "DynamicMeans-partial_fit": (
        smallvar.DynamicMeans(lam=0.01, q=0.1, tau=0.1, n_init=N),
        "partial_fit",
        lambda: rows(10**6),
    ),
    "HDPMeans": (
        HDPMeans(lam_local=0.1, lam_global=0.1, n_init=N),
        "fit",
        lambda: in_groups(10**6, 3),
    ),
    "HDPMeans-many": (
        HDPMeans(lam_local=0.01, lam_global=0.01, n_init=N),
        "fit",
        lambda: in_groups(50000, 8),
    ),
    "KernelDPMeans": (KERNEL(lam=0.01, n_init=N), "fit", lambda: rows(7000)),
    "KernelDPMeans-blocks": (
        KERNEL(lam=0.05, n_init=N, max_memory=1e7),
        "fit",
        lambda: rows(20000),
    ),
    "KernelDPMeans-collapsed": (
        KERNEL(lam=0.01, n_init=N, algorithm="collapsed"),
        "fit",
        lambda: rows(4000),
    ),
    "KernelDPMeans-predict": (KERNEL(lam=0.01), "predict", lambda: rows(10**6)),
    "KernelDynamicMeans": (
        smallvar.KernelDynamicMeans(lam=0.1, gamma=0.1, n_init=N),
        "fit",
        lambda: rows(4000),
    ),
    "KernelHDPMeans": (
        smallvar.KernelHDPMeans(lam_local=0.05, lam_global=0.05, n_init=N),
        "fit",
        lambda: in_groups(6000, 3),
    ),
    "MiniBatchDPMeans-partial_fit": (
        smallvar.MiniBatchDPMeans(lam=0.001, max_clusters=2000),
        "partial_fit",
        lambda: rows(3 * 10**6),
    ),
    "PenalizedCut": (smallvar.PenalizedCut(lam=-0.3, n_init=N), "fit", lambda: graph(10**5)),
    "PenalizedCut-incremental": (
        smallvar.PenalizedCut(lam=-0.3, n_init=N, algorithm="incremental"),
        "fit",
        lambda: graph(30000),
    ),
    "SpectralDPMeans": (
        smallvar.SpectralDPMeans(lam=1.0, kernel="rbf", gamma=1.0),
        "fit",
        lambda: rows(3500),
    ),
    "SpectralDynamicMeans": (
        smallvar.SpectralDynamicMeans(lam=0.05, gamma=0.3, n_init=N),
        "fit",
        lambda: rows(1500),
    ),
}
# fits of other data, or with a stage that is as long
MANY = {key: case for key, case in LONG.items() if case[1] == "fit"} | {
    "BPMeans-penalty": (
        BP(lam="farthest-first", n_components=2000),
        "fit",
        lambda: rows(100_000, 20),
    ),
    "DPMeans-sparse": (
        DPMeans(lam=1e-3, n_init=N),
        "fit",
        lambda: scipy.sparse.csr_array(rows(3000)),
    ),
    "DPMeans-sweep": (DPMeans(lam=1e-12), "fit", lambda: rows(300_000, 8)),
    "MixedDPMeans-auto": (smallvar.MixedDPMeans(), "fit", lambda: rows(3 * 10**6, 6)),
}


def long_call(key):
    """A model with a seed, if it draws, the method and the arguments of a case of MANY or LONG."""
    model, method, data = (LONG | MANY)[key]
    model, data = clone(model), data()
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    return model, method, data if isinstance(data, dict) else {"X": data}


@pytest.mark.parametrize("key", MANY)
def test_interrupt_leaves_the_estimator_as_it_was(key, interrupt):
    """(That it comes within a second is measured by hand: here only that it comes.)"""
    model, _, data = long_call(key)
    asked = model.get_params()
    few = {"n_init": 1, "max_iter": 9, "n_swaps": 0, "n_components": 9}
    few = {name: value for name, value in few.items() if name in asked}
    small = {name: value[:300] for name, value in data.items()}
    if "Cut" in key:
        small["X"] = small["X"][:, :300]
    fitted = clone(model).set_params(**few).fit(**small).set_params(**asked)
    for one in (model, fitted):
        before = pickle.dumps(vars(one))
        interrupt(0.7)
        with pytest.raises(KeyboardInterrupt):
            one.fit(**data)
        assert pickle.dumps(vars(one)) == before


WITH_THREADS = [name for name in MODELS if "n_threads" in made(name).get_params()]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads another process's clock")
@may_warn
@pytest.mark.parametrize("key", LONG)
def test_interrupt_at_any_moment_comes_within_a_second(key):
    """Of computing time; only one call of LAPACK may go on unseen.

    The signal is of another process: a thread of this one could not send it while the interpreter
    is held, which is one thing that this looks for.
    """
    model, method, data = long_call(key)
    starts = {"n_init": model.n_init} if hasattr(model, "n_init") else {}
    model.set_params(**dict.fromkeys(starts, 1))
    model.fit(graph(90) if "Cut" in key else np.abs(rows(90, data["X"].shape[1])))
    model.set_params(**starts)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    sender = subprocess.Popen(
        [sys.executable, "-c", SENDER, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    rng, latencies = np.random.default_rng(0), []
    try:
        for _ in range(MOMENTS):
            before, bits = dict(vars(model)), pickle.dumps(vars(model))
            try:
                print(rng.uniform(0.01, 1.5), file=sender.stdin)
                getattr(model, method)(**data)
                time.sleep(2.0)  # not reached: no call of LONG is over before that
                raise AssertionError("too short a call")
            except KeyboardInterrupt:
                latencies.append(time.process_time() - float(sender.stdout.readline()))
            assert vars(model).keys() == before.keys()
            assert all(value is before[name] for name, value in vars(model).items())
            assert pickle.dumps(vars(model)) == bits
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sender.kill()
        sender.communicate()
        signal.signal(signal.SIGINT, handler)
    print(key, "CPU seconds", np.round(latencies, 2))
    assert max(latencies) < 1.0


FEW = {"max_iter": 3, "n_init": 2}


def fit_until_interrupted(key):
    """A fit of LONG with two threads; what the model can do afterward is as before."""
    config._cores = lambda: 2
    model, _, data = long_call(key)
    small = {name: value[:900] for name, value in data.items()}

    def bits():
        quick = {name: n for name, n in FEW.items() if name in model.get_params()}
        few = clone(model).set_params(**quick)
        few.fit(**small)
        return [value.tobytes() for value in vars(few).values() if isinstance(value, np.ndarray)]

    model.set_params(n_threads=2)
    before = bits()
    print("begins", flush=True)
    try:
        model.fit(**data)
        print("too short a call", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    assert bits() == before
    assert not any(name.endswith("_") for name in vars(model))
    print("fine", flush=True)


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT to one process")
@pytest.mark.parametrize("key", WITH_THREADS)
def test_interrupt_of_a_fit_with_two_threads(key):
    """By the signal, in a process of its own, which works on."""
    program = (
        "import signal, test_robust as t\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"t.fit_until_interrupted({key!r})"
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout.readline() == "begins\n"
            time.sleep(0.7)
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            elapsed = time.monotonic() - start
            print(key, f"{elapsed:.2f} seconds")
            assert elapsed < 10.0  # a second at most where nothing else runs
            assert process.communicate(timeout=60)[0] == "fine\n"
        finally:
            process.kill()
    assert process.returncode == 0


# Calls of the compiled sweeps, and checks for signals that they make at least: between two of these
# there are some 5e8 multiply-adds at most.
ONCE = {"max_iter": 1, "n_threads": 1}
WORKING = {
    "covariance": (lambda X, sweep: inverse_roots(np.eye(1000)[np.newaxis]), 3),
    "mergers": (lambda X, sweep: sweep.merge(1), 3),
    "many centers": (lambda X, sweep: DPMeans(lam=1e-3, **ONCE).fit(X), 20),
    "many global ones": (
        lambda X, sweep: HDPMeans(lam_local=1e-3, lam_global=1e-3, **ONCE).fit(X[:250]),
        21,
    ),
}


def checks_for_signals(key, library):
    """How often a call of WORKING looks for signals."""
    X = np.random.default_rng(0).normal(size=(600, 6000))
    sweep = RowsFrame(X, None, 1).sweep(len(X), bounded=True, kind=MergeSweep)
    sweep.start(X)
    sweep.assign()
    sweep.move_centers()
    checks = ctypes.CDLL(library).checks
    before = checks()
    WORKING[key][0](X, sweep)
    return checks() - before


@pytest.mark.parametrize("key", WORKING)
def test_signals_are_looked_for_within_a_step(key, failing):
    program = f"import test_robust as t; print(t.checks_for_signals({key!r}, {failing!r}))"
    environment = {"LD_PRELOAD": failing, "OPENBLAS_NUM_THREADS": "1"}
    assert int(run_with(program, **environment)) >= WORKING[key][1]


# Memory that is not given


FAILING = r"""
#include <errno.h>
#include <stddef.h>

static volatile long n_checks;
long checks(void) { return n_checks; }
int PyErr_CheckSignals(void) { n_checks++; return 0; }

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);

static struct { char *low, *high; } own[32];
static int n_own;
static volatile long first, last, seen;
static volatile size_t large; /* 0: nothing fails */

void watch(char *low, char *high) { own[n_own].low = low; own[n_own++].high = high; }
long requests(void) { return seen; }
void fail(long from, long to, size_t bytes) { seen = 0; first = from; last = to; large = bytes; }

/* those that count are large, or of the compiled sweeps */
static int fails(size_t bytes, char *caller) {
    long n;
    int i = 0;
    if (!large) return 0;
    if (bytes < large) {
        while (i < n_own && !(own[i].low <= caller && caller < own[i].high)) i++;
        if (i == n_own) return 0;
    }
    n = __sync_add_and_fetch(&seen, 1);
    if (n < first || n >= last) return 0;
    errno = ENOMEM;
    return 1;
}

#define FAILS(bytes) fails(bytes, __builtin_return_address(0))
void *malloc(size_t n) { return FAILS(n) ? 0 : __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return FAILS(n * m) ? 0 : __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return FAILS(n) ? 0 : __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { return FAILS(n) ? 0 : __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) {
    void *q = FAILS(n) ? 0 : __libc_memalign(a, n);
    if (!q) return ENOMEM;
    *p = q;
    return 0;
}
"""
# numpy loses the error where its own buffers, of up to 128 kB, are not given
LARGE = 150_000
# whose tables are of rows by rows, or whose states are almost as many as the rows
SMALL_DATA = ("Kernel", "Spectral", "Cut", "Segment")


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """A library whose malloc fails when it is told to, and that counts checks for signals."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if (
        compiler is None
        or not sys.platform.startswith("linux")
        or platform.libc_ver()[0] != "glibc"
    ):
        pytest.skip("replaces the malloc of glibc, with a C compiler")
    folder = tmp_path_factory.mktemp("malloc")
    source, library = folder / "failing.c", folder / "failing.so"
    source.write_text(FAILING)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True
    )
    return str(library)


def without_memory(key, library, most):
    """Calls of an estimator, each time with other requests that fail; returns their number.

    One request, and then all from one on; of many requests ``most`` are tried.
    """
    shim = ctypes.CDLL(library)
    nothing = ctypes.c_size_t(0)  # where memory is short none is wanted for this
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "_sweeps" in line and " r-xp " in line:
            shim.watch(*(ctypes.c_void_p(int(at, 16)) for at in line.split()[0].split("-")))
    small = any(word in key for word in SMALL_DATA)
    model, X = clone(ESTIMATORS[key]), data_for(ESTIMATORS[key], 420 if small else 60_000)
    for name, value in {"n_init": 1, "max_iter": 2, "max_features": 6}.items():
        if name in model.get_params():
            model.set_params(**{name: value})
    fitted, failed = model.fit(X), 0
    for method in ("fit", "partial_fit", "predict", "transform", "score"):
        if not hasattr(fitted, method):
            continue
        shim.fail(0, 0, ctypes.c_size_t(LARGE))
        getattr(deepcopy(fitted), method)(X)
        n = shim.requests()
        shim.fail(0, 0, nothing)
        for first in np.unique(np.linspace(1, n, min(n, most)).astype(int)).tolist():
            for last in (first + 1, 10**9):
                model = deepcopy(fitted)
                before, bits, call = (
                    dict(vars(model)),
                    pickle.dumps(vars(model)),
                    getattr(model, method),
                )
                shim.fail(first, last, ctypes.c_size_t(LARGE))
                try:
                    call(X)
                except MemoryError:
                    shim.fail(0, 0, nothing)
                    failed += 1
                    assert vars(model).keys() == before.keys()
                    assert all(value is before[name] for name, value in vars(model).items())
                    assert pickle.dumps(vars(model)) == bits
                    assert not _changing
                finally:
                    shim.fail(0, 0, nothing)
    return failed


def run_with(program, **environment):
    """What a program with the functions of this file prints."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:3000]
    return done.stdout


@pytest.mark.parametrize(
    "most", [pytest.param(40, marks=pytest.mark.slow), pytest.param(3, id="few")]
)
@each_estimator
def test_memory_that_is_not_given(key, most, failing):
    """MemoryError, and the estimator as before; never a crash."""
    program = f"import test_robust as t; print(t.without_memory({key!r}, {failing!r}, {most}))"
    failed = int(run_with(program, LD_PRELOAD=failing, OPENBLAS_NUM_THREADS="1"))
    print(key, failed, "failed requests")
    assert failed > 3


LIMITED = """
import pickle, resource
import numpy as np
import scipy.linalg
from smallvar import *
square = np.ones((300, 300))  # OpenBLAS ends the process if its own tables are not given
square @ square, np.linalg.svd(square), scipy.linalg.eigh(square), square @ square[0]
rows = np.random.default_rng(0).normal(size=(400_000, 8))
few = rows[:30_000]
DPMeans(lam=30.0).fit(rows[:50])  # so does the OpenMP of LLVM when it begins
CALLS = [
    (DPMeans(lam=30.0, max_iter=2), rows),
    (BregmanDPMeans(lam=2.0, divergence="logistic", max_clusters=5), np.tanh(rows**2)),
    (BPMeans(lam=40.0, max_features=2, max_iter=1, n_init=1), rows),
    (HDPMeans(lam_local=30.0, lam_global=30.0, max_iter=2), rows),
    (DynamicMeans(lam=30.0, q=0.1, tau=0.1, max_iter=2, n_init=1), rows),
    (MiniBatchDPMeans(lam=30.0, max_iter=2), rows),
    (MahalanobisMeans(3, max_iter=2, n_init=1), rows),
    (KernelDPMeans(lam=0.5, max_clusters=5, max_memory=1e12), few),
    (SpectralDPMeans(lam=0.5, kernel="rbf"), few[:6_000]),  # what is larger goes by blocks
    (KernelDynamicMeans(lam=0.5, gamma=0.1, max_memory=1e12), few),
]
refused = 0
for model, X in CALLS:
    for room in (0, 4, 16, 64):
        before = pickle.dumps(vars(model))
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + room * 2**20, resource.RLIM_INFINITY))
        try:
            model.fit(X)
        except MemoryError:
            refused += 1
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
            assert pickle.dumps(vars(model)) == before
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
print(refused)
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_limit_on_memory():
    """As of ``ulimit -v``."""
    assert int(run_with(LIMITED, OPENBLAS_NUM_THREADS="1")) > 10


# Data far from the origin


@pytest.mark.parametrize("model", ["KernelDPMeans", "KernelDynamicMeans", "KernelHDPMeans"])
def test_rbf_does_not_depend_on_where_the_origin_is(model):
    X = np.round(rows(80) * 2.0**20) / 2.0**20
    far = X + 2.0**30  # exact: no digit is lost
    model_a, model_b = (clone(ESTIMATORS[model]).set_params(gamma=0.7).fit(x) for x in (X, far))
    assert model_a.n_clusters_ > 1 if hasattr(model_a, "n_clusters_") else model_a.labels_.max() > 0
    assert np.array_equal(model_a.labels_, model_b.labels_)
    np.testing.assert_allclose(model_b.objective_, model_a.objective_, rtol=1e-9)
    if hasattr(model_b, "objective_path_"):
        assert never_rises(model_b.objective_path_)


@pytest.mark.parametrize("exponent", range(0, 16, 3))
def test_one_row_far_from_the_others(exponent):
    """Rounding of squares made another K of each block, and sweeps without end."""
    for seed in (1, 8):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 2, size=(12, 3)) @ rng.normal(size=(3, 8)) + 10.0**exponent
        X[0] = 0.0
        model = smallvar.KernelHDPMeans(max_memory=100.0).fit(X)
        assert model.n_iter_ < 15
        held = clone(model).set_params(max_memory=1e9).fit(X)
        assert np.array_equal(model.labels_, held.labels_)


def test_rows_beyond_the_range_of_squares_for_rbf():
    model = clone(ESTIMATORS["KernelDPMeans"]).fit(rows())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.transform(rows() * 1e200).max() < 2.0
        assert model.predict(np.array([[1e308, -1e308, 0.0], [-1e308, 1e308, 0.0]])).max() >= 0


# Divergences of tiny numbers


@each_algorithm
@pytest.mark.parametrize("divergence", sorted(DIVERGENCES))
@pytest.mark.parametrize("least", [5e-324, 1e-300, 1e-150, 1e-130])
def test_tiny_numbers_next_to_others(least, divergence, algorithm):
    X = np.abs(rows(20)) / 20.0
    X[:3] = least
    model = BregmanDPMeans(lam=0.5, divergence=divergence, algorithm=algorithm)
    weight = np.ones(len(X))
    weight[3:] = 1e-5
    for w in (None, weight):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(X, sample_weight=w)
            assert np.isfinite(model.objective_path_).all()
            assert never_rises(model.objective_path_)
            if algorithm == "serial":
                assert np.array_equal(model.predict(X), model.labels_)
                own = model.transform(X)[np.arange(len(X)), model.labels_]
                np.testing.assert_allclose(own, model.transform(X).min(axis=1), rtol=1e-12)


@each_algorithm
@pytest.mark.parametrize("divergence", ["kl", "logistic"])
def test_means_below_the_least_number(divergence, algorithm):
    """A third of the least number is no number, but 0 would be infinitely far from its members."""
    X = np.zeros((3, 5))
    X[0], X[1, 4], X[2, 0] = 5e-324, 1.0, 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BregmanDPMeans(lam=4.0, divergence=divergence, algorithm=algorithm).fit(X)
    assert np.isfinite(model.objective_path_).all()
    assert np.isfinite(model.transform(X)[np.arange(3), model.labels_]).all()


def test_mean_next_to_one():
    """Of 1 and the number before it: the rounded mean is 1, infinitely far from the other."""
    X = np.array([[1.0], [1.0], [1.0], [np.nextafter(1.0, 0.0)], [0.5]])
    model = BregmanDPMeans(lam=0.5, divergence="logistic", algorithm="serial").fit(X)
    assert model.labels_.tolist() == [0, 0, 0, 0, 1]
    assert np.isfinite(model.transform(X)[np.arange(5), model.labels_]).all()


def test_divergences_beyond_float64():
    model = BregmanDPMeans(lam=0.5, divergence="itakura_saito")
    with pytest.raises(ValueError, match="X must have a finite .weighted. sum of divergences"):
        model.fit([[1e-280], [1e100]], sample_weight=[1e100, 1e-300])


@pytest.mark.parametrize("divergence", ["kl", "itakura_saito"])
def test_centers_far_below_the_data(divergence):
    """Their products with the data are beyond float64: divergences alone decide."""
    model = BregmanDPMeans(lam=1e-3, divergence=divergence)
    centers = np.array([[5e-324] * 3, [1e-300] * 3, [3.0] * 3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (1, 2, 3):
            model.set_params(init=centers[:n]).fit(rows())
            assert np.isfinite(model.objective_path_).all()
        model.cluster_centers_ = centers
        assert (model.predict(rows() * 1e10) == 2).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("memory", [1e9, 100.0])
@pytest.mark.parametrize("model", ["KernelDPMeans", "KernelHDPMeans"])
def test_linear_does_not_depend_on_where_the_origin_is(model, memory, dtype):
    X = (np.round((rows(40) - 5.0) * 4.0) / 4.0).astype(dtype)
    far = X + dtype(2.0 ** (30 if dtype == np.float64 else 20))  # exact: no digit is lost
    made = clone(ESTIMATORS[model]).set_params(kernel="linear", gamma=None, max_memory=memory)
    made.set_params(**{name: 3.0 for name in made.get_params() if name.startswith("lam")})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model_a, model_b = (clone(made).fit(x) for x in (X, far))
    assert model_a.n_clusters_ > 1
    assert np.array_equal(model_a.labels_, model_b.labels_)
    np.testing.assert_allclose(model_b.objective_, model_a.objective_, rtol=1e-6)
    assert np.array_equal(model_a.predict(X[::-1]), model_b.predict(far[::-1]))
    if model == "KernelDPMeans":
        np.testing.assert_allclose(
            model_b.transform(far), model_a.transform(X), rtol=1e-4, atol=1e-4
        )
        np.testing.assert_allclose(model_b.score(far), model_a.score(X), rtol=1e-5)
    assert np.array_equal(pickle.loads(pickle.dumps(model_b)).predict(far), model_b.labels_)


@pytest.mark.parametrize("kernel", ["linear", "poly", "cosine"])
@pytest.mark.parametrize(
    "model",
    [
        KernelDPMeans(lam=1e9),
        smallvar.KernelHDPMeans(lam_local=1e9, lam_global=1e9),
        smallvar.KernelDynamicMeans(lam=1e9),
        smallvar.SpectralDynamicMeans(lam=1e9),
        smallvar.SpectralDPMeans(lam=1e9),
    ],
    ids=lambda model: type(model).__name__,
)
def test_kernels_of_products_far_from_zero(model, kernel):
    model = clone(model).set_params(kernel=kernel)
    if kernel == "linear" and isinstance(model, (KernelDPMeans, smallvar.KernelHDPMeans)):
        return  # above
    assert not isinstance(warned(model, rows(30) + 1e3), UserWarning)
    warning = warned(model, rows(30) + 1e8)
    assert re.search(
        rf"X lies 1e\+08 from zero and is spread over [34][.\d]*: with kernel='{kernel}'",
        str(warning),
    )


def test_a_serial_objective_does_not_rise_with_weights_far_apart():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        weight = 1e12 ** rng.uniform(-1, 0, size=40)
        weight[:2] = 1.0, 1e-12
        for kernel in ("rbf", "linear"):
            model = KernelDPMeans(lam=0.5 * 1e12 ** -rng.uniform(0, 1), kernel=kernel)
            path = model.fit(np.abs(rows(seed=seed)), sample_weight=weight).objective_path_
            assert np.all(np.diff(path) <= 1e-12 * path[:-1])


@pytest.mark.parametrize("divergence", ["squared_euclidean", "itakura_saito"])
def test_divergences_beyond_float32(divergence):
    X = np.abs(rows(20))
    model = BregmanDPMeans(lam=1e3, divergence=divergence).fit(X)
    far = X * (1e30 if divergence == "squared_euclidean" else 1e38)
    assert np.isfinite(model.transform(far)).all()
    model.cluster_centers_ = model.cluster_centers_ / 10.0
    with pytest.raises(ValueError, match="X must be so near the centers .* finite as float32"):
        model.transform(np.minimum(far, 3e38).astype(np.float32))


@pytest.mark.parametrize("lam", [None, 1e5])
def test_mahalanobis_distances_beyond_floats(lam):
    X = rows(20)
    model = smallvar.MahalanobisMeans(
        2, volume="clusters", lam=lam, covariances=1e-300 * np.eye(3), reg_covar=0, random_state=0
    )
    with pytest.raises(ValueError, match="X must be so near the centers, for their covariances"):
        model.fit(X * 1e10)
    assert not vars(model).keys() - model.get_params().keys()
    model.fit(X * 1e-140)
    for method in (model.predict, model.transform, model.score):
        with pytest.raises(ValueError, match="X must be so near the centers"):
            method(X * 1e10)
    assert np.isfinite(model.transform(X * 1e-100)).all()
    with pytest.raises(ValueError, match="distances as float32, are finite"):
        model.transform((X * 1e-30).astype(np.float32))


@pytest.mark.parametrize("key", ["DPMeans", "DynamicMeans", "SpectralDPMeans"])
def test_data_whose_sum_is_beyond_float32(key):
    X = np.tile(np.array([[3e38, -3e38]], dtype=np.float32), (40, 1))
    X[::2] *= -1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(clone(ESTIMATORS[key])._validate(X, reset=True), X)
        assert smallvar.farthest_first_lambda(X, 1) > 1e76
