"""Bad input gets a clear error and loses nothing; every kind of good input is taken."""

import subprocess
import sys
import textwrap
import threading
import time
from functools import cache, partial
from inspect import signature

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from helpers import assert_refuses, assert_unchanged, snapshot
from models import ESTIMATORS, GRAPH, ROWS, made
from problems import blobs, check_features
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from smallvar import (
    BPMeans,
    DPMeans,
    DynamicMeans,
    HDPMeans,
    KernelDynamicMeans,
    KFeatures,
    MahalanobisMeans,
    MiniBatchDPMeans,
    RobustDPMeans,
    SegmentMeans,
    ShapeMeans,
    SpectralDPMeans,
    SpectralDynamicMeans,
    cluster_path,
    coreset,
    farthest_first_lambda,
    feature_path,
    hdp_lambdas,
)

X = ROWS[:40]
# rows; graphs and tables are in test_graph.py and test_mixed.py
OF_ROWS = [e for e in ESTIMATORS if e.__name__ not in ("PenalizedCut", "MixedDPMeans")]
BOTH = pytest.mark.parametrize("estimator", [DPMeans, MiniBatchDPMeans], ids=lambda e: e.__name__)
FEATURES = pytest.mark.parametrize("estimator", [BPMeans, KFeatures], ids=lambda e: e.__name__)
EVERY = pytest.mark.parametrize("estimator", OF_ROWS, ids=lambda e: e.__name__)
within_two_minutes = pytest.mark.timeout(120, method="thread")
each_exponent = pytest.mark.parametrize("exponent", [-100, 80, 120])


def takes(estimator, method="fit"):
    """Names of the parameters of a method; none where it is missing."""
    return signature(getattr(estimator, method, lambda: None)).parameters


WEIGHTED = pytest.mark.parametrize(
    "estimator",
    [e for e in ESTIMATORS if "sample_weight" in takes(e)],
    ids=lambda e: e.__name__,
)
METHODS = ("predict", "transform", "score")


def with_value(value):
    """X with one bad entry at the very end."""
    bad = X.copy()
    bad[-1, -1] = value
    return bad


BAD_DATA = {
    "NaN": (with_value(np.nan), ValueError, r"NaN\) in column 2 at position"),
    "infinity": (with_value(np.inf), ValueError, "infinity"),
    "NaN, float32": (with_value(np.nan).astype(np.float32), ValueError, "NaN"),
    "NaN, Fortran": (np.asfortranarray(with_value(np.nan)), ValueError, "NaN"),
    "no rows": (np.empty((0, 3)), ValueError, "0 sample"),
    "no columns": (np.empty((5, 0)), ValueError, "0 feature"),
    "empty list": ([], ValueError, "(?i)array"),
    "1-d": (X[:, 0], ValueError, "2D array"),
    "3-d": (X[None], ValueError, "dim"),
    "scalar": (3.0, ValueError, "2D array"),
    "strings": (
        [["a", "b", "c"], ["d", "e", "f"]],
        ValueError,
        "MixedDPMeans takes columns of words",
    ),
    "objects": (np.array([[{}, 1], [2, 3]], dtype=object), (TypeError, ValueError), "number"),
    "ragged": ([[1.0, 2.0], [3.0]], ValueError, "(?i)inhomogeneous|sequence"),
    "complex": (X + 1j, ValueError, "(?i)complex"),
    "sparse": (
        scipy.sparse.csr_array(X * np.nan),
        (TypeError, ValueError),
        "sparse|NaN.* in col",
    ),
    "missing values": (pd.DataFrame({"a": [1.0, None], "b": [1, 2]}), ValueError, "NaN"),
}


BIG = 10**400  # beyond float64


@EVERY
def test_numbers_beyond_float64(estimator):
    for bad in ([[BIG, 1.0], [2.0, 3.0]], np.array([[1, 2], [3, -BIG]], dtype=object)):
        assert_refuses(made(estimator), lambda m, b=bad: m.fit(b), ValueError, "X", "float64")
    functions = (lambda x: farthest_first_lambda(x, 1), lambda x: coreset(x, 1, 1.0))
    for function in (cluster_path, feature_path, *functions):
        with pytest.raises(ValueError, match="X must be within the range of float64"):
            function([[BIG], [1]])


@WEIGHTED
@pytest.mark.parametrize("dtype", ["complex", "M8[s]", "m8[D]"])
def test_weights_that_are_no_real_numbers(estimator, dtype):
    """An imaginary part is not left out in silence, a date is no number of seconds."""
    weights = np.ones(40, dtype=dtype)
    words = ("sample_weight", "real numbers")
    assert_refuses(made(estimator), lambda m: m.fit(X, sample_weight=weights), ValueError, *words)


def test_starts_that_are_no_real_numbers():
    cases = (
        (DPMeans(lam=0.5), {"init": X[:2] + 1j}),
        (DPMeans(lam=0.5), {"init": [[BIG] * 3]}),
        (BPMeans(lam=0.5), {"init": np.ones((40, 2), dtype=complex)}),
        (MahalanobisMeans(2), {"covariances": np.eye(3) + 0j}),
        (MahalanobisMeans(2), {"init": X[:2] + 0j}),
    )
    for model, start in cases:
        model.set_params(**start)
        assert_refuses(model, lambda m: m.fit(X), ValueError, *start)


@BOTH
def test_distances_beyond_the_type(estimator):
    model = estimator(lam=0.5).fit(X)
    far, wide = np.full((2, 3), 1e200), np.full((2, 3), 3e38, dtype=np.float32)
    for bad, dtype in ((far, "float64"), (wide, "float32")):
        assert_refuses(model, lambda m, b=bad: m.transform(b), ValueError, "X must be", dtype)
    assert np.isfinite(model.transform(np.full((2, 3), 1e38))).all()


def test_penalties_of_data_whose_squares_are_infinite():
    groups = np.arange(40) % 2
    for scale in (1e200, 1e-200):
        for call in (
            lambda x: farthest_first_lambda(x, 3),
            lambda x: hdp_lambdas(x, groups, 2, 3),
            lambda x: DPMeans(lam="farthest-first", guess=3).fit(x),
        ):
            with pytest.raises(ValueError, match="X must have its largest absolute value"):
                call(X * scale)


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_for_a_function(name):
    bad, errors, word = BAD_DATA[name]
    for function in (
        cluster_path,
        lambda x: farthest_first_lambda(x, 1),
        lambda x: coreset(x, 1, 1.0),
        lambda x: hdp_lambdas(x, np.zeros((np.shape(x) or (1,))[0]), 1, 1),
    ):
        with pytest.raises(errors, match=word):
            function(bad)


@pytest.mark.filterwarnings("ignore:X has feature names")
@EVERY
@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data(estimator, name):
    bad, errors, word = BAD_DATA[name]
    fitted = made(estimator).fit(X)
    for model in (made(estimator), fitted):
        assert_refuses(model, lambda m: m.fit(bad), errors, word)
    for method in METHODS:
        if hasattr(estimator, method):
            assert_refuses(fitted, lambda m, f=method: getattr(m, f)(bad), errors)
    if hasattr(estimator, "partial_fit") and name != "no rows":
        streamed = made(estimator).partial_fit(X)
        for model in (made(estimator), streamed):
            assert_refuses(model, lambda m: m.partial_fit(bad), errors)


@pytest.mark.parametrize(
    ("estimator", "method"),
    [(e, method) for e in OF_ROWS for method in (*METHODS, "partial_fit") if hasattr(e, method)],
)
def test_wrong_number_of_features(estimator, method):
    if method != "partial_fit":
        assert_refuses(
            made(estimator), lambda m: getattr(m, method)(X), NotFittedError, estimator.__name__
        )
    model = made(estimator).fit(X)
    for other in (X[:, :2], np.hstack([X, X])):
        words = (f"{other.shape[1]} feature", "3 feature")
        assert_refuses(model, lambda m, o=other: getattr(m, method)(o), ValueError, *words)


# Weights, and what the message says of them.
BAD_WEIGHTS = {
    "negative": (np.r_[np.ones(39), -0.5], r"be >= 0, got -0\.5"),
    "all zero": (np.zeros(40), "have a positive entry"),
    "NaN": (np.r_[np.ones(39), np.nan], "be finite, got NaN or infinity"),
    "infinite": (np.r_[np.ones(39), np.inf], "be finite, got NaN or infinity"),
    "too short": (np.ones(39), r"have shape \(40,\), got \(39,\)"),
    "too long": (np.ones(41), r"have shape \(40,\), got \(41,\)"),
    "2-d": (np.ones((40, 2)), r"have shape \(40,\), got \(40, 2\)"),
    "strings": (["a"] * 40, "be numbers"),
    "beyond float64": ([1] * 39 + [BIG], "be .*float64"),
    "tiny": (np.r_[np.ones(39), 1e-320], "be 0 or between"),
}


@WEIGHTED
@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_bad_weights(estimator, name):
    weights, words = BAD_WEIGHTS[name]
    fitted = made(estimator).fit(X)
    for method in ("fit", "partial_fit", "predict", "score"):
        if "sample_weight" in takes(estimator, method):
            refused = lambda m, f=method: getattr(m, f)(X, sample_weight=weights)  # noqa: E731
            for model in (fitted, made(estimator))[: 2 if "fit" in method else 1]:
                assert_refuses(model, refused, ValueError, f"^sample_weight must {words}")


# Groups or times of three rows, and what the message says of them.
BAD_NAMES = {
    "short": ([0, 1], r"have shape \(3,\), got \(2,\)"),
    "long": ([0, 1, 2, 3], r"have shape \(3,\), got \(4,\)"),
    "a row": ([[0, 1, 2]], r"have shape \(3,\), got \(1, 3\)"),
    "two columns": ([[0, 1], [1, 1], [1, 1]], r"have shape \(3,\), got \(3, 2\)"),
    "tuples": ([("a", 1), ("b", 1), ("a", 2)], r"have shape \(3,\), got \(3, 2\)"),
    "uneven tuples": ([("a",), ("b", 1), ("a", 2)], "have shape .* several lengths"),
    "bytes": ([b"a", "b", "c"], "be all numbers or all strings, .* got bytes, str"),
    "bytes beyond ASCII": ([b"\xff", "b", "c"], "be all numbers .*, got bytes, str"),
    "bytes and numbers": ([b"1", 1, b"2"], "be all numbers or all strings, .* got bytes, int"),
    "mixed list": ([1, "b", "c"], "be all numbers or all strings.*, got int, str"),
    "mixed": (np.array([0, "b", 1.5], dtype=object), "be all numbers .* got float, int, str"),
    "NaN": ([0.0, np.nan, 1.0], "not be missing"),
    "NaN among objects": (np.array([0.0, np.nan, 1.0], dtype=object), "not be missing"),
    "NaN among strings": (np.array(["a", np.nan, "b"], dtype=object), ""),
    "None": (["a", None, "b"], "not be missing, got None at position 1"),
    "objects": (np.array([(0,), (1, 2), None], dtype=object), "be numbers, .* tuple"),
    "structures": (np.zeros(3, dtype=[("a", int)]), "be numbers, dates or strings"),
    "NaT": (np.array([0, "NaT", 1], dtype="M8[D]"), "not be missing, got NaT|None"),
    "spans": (np.array([0, "NaT", 1], dtype="m8[s]"), "not be missing"),
}
TAKE_NAMES = [made(e) for e in ESTIMATORS if {"groups", "times"} & {*takes(e)}]


@pytest.mark.parametrize("case", BAD_NAMES)
@pytest.mark.parametrize("model", TAKE_NAMES, ids=lambda m: type(m).__name__)
def test_bad_groups_and_times(model, case):
    values, message = BAD_NAMES[case]
    name = "groups" if "groups" in takes(model) else "times"
    model = clone(model).fit(X[:9])
    for method in ("fit", "predict"):
        if name in signature(getattr(model, method)).parameters:
            refused = lambda m, f=method: getattr(m, f)(X[:3], **{name: values})  # noqa: E731
            assert_refuses(model, refused, ValueError, f"^{name} must {message}")
    if name == "groups":
        with pytest.raises(ValueError, match=f"groups must {message}"):
            hdp_lambdas(X[:3], values, 1, 1)


# Estimators of streams, and a parameter that must not change in mid-stream.
BATCHES, MOVES = partial(MiniBatchDPMeans, random_state=0), {"t_q": 4.0, "k_tau": 1.1}
STAYS = [
    (BATCHES(lam=2.0), "lam", 3.0),
    (BATCHES(), "lam", 3.0),
    (BATCHES(lam="farthest-first", guess=3), "lam", "auto"),
    (BATCHES(lam="farthest-first", guess=3), "guess", 4),
    (BATCHES(lam=2.0), "init", [[0.0, 0.0, 0.0]]),
    (BATCHES(lam=2.0, init=[[0.0, 0.0, 0.0]]), "init", "mean"),
    (BATCHES(lam=2.0, init=[[0.0, 0.0, 0.0]]), "init", [[0.0, 0.0, 1.0]]),
    *((DynamicMeans(lam=1.0, **MOVES), "lam", value) for value in (2.0, "farthest-first")),
    *((DynamicMeans(lam=1.0, **MOVES), name, value) for name, value in (("t_q", 3), ("k_tau", 2))),
    *(
        (kind(random_state=0), name, value)
        for kind in (KernelDynamicMeans, SpectralDynamicMeans)
        for name, value in (
            ("kernel", "linear"),
            ("kernel", "poly"),
            ("gamma", 3.0),
        )
    ),
]


@pytest.mark.parametrize("begin", ["fit", "partial_fit"])
@pytest.mark.parametrize(("model", "name", "value"), STAYS)
def test_what_was_used_stays(begin, model, name, value):
    """Refused in mid-stream, where it could not be honored; a fit begins anew."""
    model = getattr(clone(model), begin)(X)
    was = getattr(model, name)
    model.set_params(**{name: value})
    words = f"{name} must stay what it was"
    assert_refuses(model, lambda m: m.partial_fit(X), ValueError, words)
    model.set_params(**{name: was}).partial_fit(X)
    model.set_params(**{name: value}).fit(X)


# Parameter, value, and the words that the message holds besides the parameter's name.
BAD_COUNTS = [
    *((n, (f"must be >= 1, got {n}(; None takes all threads)?$",)) for n in (0, -2)),
    *((n, (f"must be (an integer.*|one of 'auto'), got {n!r}$",)) for n in (1.5, "many")),
]
BAD_PARAMETERS = [
    *((name, *bad) for name in ("max_clusters", "max_features", "n_init") for bad in BAD_COUNTS),
    *((name, *bad) for name in ("max_iter", "n_threads", "guess") for bad in BAD_COUNTS),
    *((name, *bad) for name in ("n_clusters", "n_local", "n_global") for bad in BAD_COUNTS),
    *((name, *bad) for name in ("budget", "batch_size", "n_components") for bad in BAD_COUNTS),
    ("lam", -1.5, ("must be .*, got (lam=)?-1.5",)),
    ("lam", float("nan"), ("nan",)),
    ("lam", -np.inf, ("-inf",)),
    ("lam", "farthest", ("'farthest'",)),
    ("lam", [1.0, 2.0], ("1.0, 2.0",)),
    ("lam", True, ("True",)),
    ("lam_local", 0.0, ("> 0",)),
    ("lam_local", -1, ("> 0", "-1")),
    ("lam_local", None, ("number",)),
    ("lam_local", "best", ("'best'", "farthest-first")),
    ("lam_global", np.inf, ("finite",)),
    ("lam_global", np.nan, ("> 0", "nan")),
    ("lam_global", "", ("number", "farthest-first")),
    ("lam_global", [1.0], ("number",)),
    ("lam_global", True, ("number",)),
    ("lam_global", None, ("number",)),
    ("guess", 41, ("41", "n_samples=40")),
    ("guess", None, ("None",)),
    ("algorithm", "parallel", ("must be one of .*, got 'parallel'$",)),
    ("algorithm", None, ("must be one of .*, got None$",)),
    ("assign", "greedy", ("greedy", "coordinate", "exact")),
    ("init", "random", ("random",)),
    ("init", np.zeros((2, 4)), (r"\(2, 4\)|'auto'|integer",)),
    ("init", np.zeros(3), (r"\(3,\)|'auto'|integer",)),
    ("init", np.zeros((0, 3)), (r"\(0, 3\)|'auto'|integer",)),
    ("init", np.full((2, 3), np.nan), ("NaN|nan|finite|shape|'auto'|integer",)),
    ("n_swaps", -1, ("-1", "0")),
    ("n_swaps", 0.5, ("0.5",)),
    ("tol", -0.1, ("-0.1", "0")),
    ("tol", float("nan"), ("nan", "0")),
    ("tol", "small", ("small",)),
    ("random_state", "seed", ("seed",)),
    ("max_memory", 0, ("> 0",)),
    ("max_memory", "2GB", ("'2GB'",)),
    ("gamma", -1.0, ("-1.0", ">= 0")),
    ("gamma", np.inf, ("finite",)),
    ("kernel", "rbff", ("'precomputed'",)),
    ("kernel", 3, ("3",)),
    ("record", "yes", ("True or False",)),
    ("t_q", 3.0, ("k_tau",)),
]
ARGUMENTS = {
    "guess": {"lam": "farthest-first", "min_cosine": None},
    "random_state": {"n_init": 2},
}


@pytest.mark.parametrize(
    ("estimator", "name", "value", "words"),
    [
        pytest.param(estimator, *bad, id=f"{estimator.__name__}-{bad[0]}={str(bad[1])[:12]}")
        for estimator in ESTIMATORS
        for bad in BAD_PARAMETERS
        # None is good where it is the default: no guess for SpectralDPMeans
        if estimator().get_params().get(bad[0], bad[1]) is not bad[1]
        # tables and graphs begin with something else, and penalties of cuts are negative
        and (estimator in OF_ROWS or (bad[0] != "init" and str(bad[1]) != "-1.5"))
    ],
)
def test_bad_parameter(estimator, name, value, words):
    arguments = {**ARGUMENTS.get(name, {}), name: value}
    arguments = {key: v for key, v in arguments.items() if key in estimator().get_params()}
    words = words if name == "random_state" else (name, *words)
    if estimator.__name__ == "TopicMeans":  # whose penalties follow from a code
        words = [word for word in words if word != "farthest-first"]
    data = GRAPH[:40, :40] if estimator.__name__ == "PenalizedCut" else X
    for model in (made(estimator), made(estimator).fit(data)):
        model.set_params(**arguments)
        assert_refuses(model, lambda m: m.fit(data), (TypeError, ValueError), *words)
    if isinstance(value, (int, float)) and value <= 0 and value is not True:
        with pytest.raises(ValueError, match="must"):  # TypeError is for a wrong type only
            model.fit(data)


# The same where a class has bounds of its own.
OWN_BOUNDS = [
    (DPMeans, "lam", 0, ("0", "max_clusters")),
    (DPMeans, "lam", 0.0, ("0", "max_clusters")),
    (DPMeans, "lam", None, ("None", "number")),
    (DPMeans, "lam", "farthest", ("'auto'", "'farthest-first'")),
    (DPMeans, "algorithm", "parallel", ("'serial', 'delayed', 'collapsed', 'merge'",)),
    (BPMeans, "lam", 0, ("> 0",)),
    (BPMeans, "lam", np.inf, ("inf", "finite")),
    (BPMeans, "algorithm", None, ("None", "sweep", "collapsed", "stepwise")),
    *(
        (kind, "init", *bad)
        for kind in (BPMeans, KFeatures)
        for bad in (
            ("random", ("random", "alternate", "mean", "data")),
            (None, (r"\(\)",)),
            (np.zeros((39, 2)), (r"\(39, 2\)", "40")),
            (np.zeros((40, 41)), (r"\(40, 41\)", "40")),
            (np.zeros(40), (r"\(40,\)",)),
            (np.zeros((40, 2, 1)), (r"\(40, 2, 1\)",)),
            (np.full((40, 2), 2), ("0 and 1",)),
            (np.full((40, 2), 0.5), ("0 and 1",)),
            (np.full((40, 2), -1), ("0 and 1",)),
            (np.full((40, 2), np.nan), ("0 and 1",)),
            ([["a", "b"]] * 40, ("alternate", "binary")),
        )
    ),
    (KFeatures, "n_components", None, ("None",)),
    (KFeatures, "n_components", 41, ("41", "40")),
]


@pytest.mark.parametrize(("estimator", "name", "value", "words"), OWN_BOUNDS)
def test_bad_parameter_of_a_class(estimator, name, value, words):
    for model in (made(estimator), made(estimator).fit(X)):
        if estimator is KFeatures:
            model.set_params(n_components=2)
        model.set_params(**{name: value})
        assert_refuses(model, lambda m: m.fit(X), (TypeError, ValueError), name, *words)


def test_refused_together():
    """What is fine alone but not with the rest, and messages that name no other's parameter."""
    two, three = np.zeros((40, 2)), np.zeros((40, 3))
    for model, *words in (
        (KFeatures(13, assign="exact"), "n_components", "12", "exact", "13"),
        *(
            (BPMeans(lam=lam, algorithm="collapsed", assign="exact", max_features=most), *words)
            for lam in (0.5, "auto", "farthest-first")
            for most, *words in (
                (13, "^max_features must be <= 12", "'exact'", "max_features=13;", "'auto'"),
                (None, "^max_features must be <= 12", "'exact'", "max_features=None;", "'auto'"),
            )
        ),
        *(
            (
                BPMeans(lam=0.5, algorithm=algorithm, assign="exact", max_features=3),
                *("^assign must be 'auto' or 'coordinate'", "'exact'", f"algorithm='{algorithm}'"),
            )
            for algorithm in ("sweep", "stepwise")
        ),
        (KFeatures(3, init=two), "init", "n_components=3", r"\(40, 2\)"),
        (BPMeans(lam=0.5, init=three, max_features=2), "init", "max_features=2", r"\(40, 3\)"),
        (BPMeans(lam=0.5, init=two, algorithm="stepwise"), "init", "stepwise"),
        (KFeatures("auto", init=two), "init", "n_components", "auto"),
    ):
        assert_refuses(model, lambda m: m.fit(X), ValueError, *words)
    weights = np.r_[np.ones(2), np.zeros(38)]
    model = KFeatures(3)
    assert_refuses(
        model, lambda m: m.fit(X, sample_weight=weights), ValueError, "n_components=3", "2"
    )
    with pytest.raises(ValueError, match="^(?!.*max_clusters)"):
        BPMeans(lam=0).fit(X)
    assert KFeatures(12, assign="exact", n_init=1).fit(X).n_components_ == 12


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros((3, 1)), ("n_components_=2", "1")),
        (np.zeros((3, 3)), ("n_components_=2", "3")),
        (np.zeros(2), ("2D",)),
        ([[np.nan, 0]], ("NaN",)),
        ([["a", "b"]], ("(?i)convert",)),
    ],
)
def test_bad_rows_for_the_inverse(value, words):
    assert_refuses(KFeatures(2).fit(X), lambda m: m.inverse_transform(value), ValueError, *words)


def test_bad_arguments_of_the_path():
    for arguments, word in (
        ({"max_components": 0}, "max_components"),
        ({"max_components": 2.5}, "max_components"),
        ({"max_components": 13, "assign": "exact"}, "12"),
        ({"init": np.zeros((40, 1))}, "init"),
        ({"init": "random"}, "init"),
        ({"assign": "greedy"}, "assign"),
        ({"n_init": 0}, "n_init"),
        ({"n_components": 3}, "n_components"),
        ({"lam": 3.0}, "lam"),
        ({"sample_weight": -np.ones(40)}, "sample_weight"),
    ):
        with pytest.raises((TypeError, ValueError), match=word):
            feature_path(X, **arguments)
    for bad, errors, word in BAD_DATA.values():
        with pytest.raises(errors, match=word):
            feature_path(bad)
    for scale in (1e-200, 1e200):
        with pytest.raises(ValueError, match="rescale"):
            feature_path(X * scale)


@BOTH
def test_more_centers_than_the_cap(estimator):
    model = estimator(lam=0.5, init=X[:4], max_clusters=3)
    assert_refuses(model, lambda m: m.fit(X), ValueError, "init", "max_clusters", "4", "3")


def test_lam_zero_with_a_cap_is_allowed():
    assert DPMeans(lam=0, max_clusters=5).fit(X).n_clusters_ == 5


# Interruption -------------------------------------------------------------------------------


@within_two_minutes
def test_interrupt_of_the_penalty(interrupt):
    long = np.random.default_rng(0).random((1_000_000, 8))
    model = DPMeans(lam="farthest-first", guess=900_000)
    before = snapshot(model)
    interrupt(0.5)
    with pytest.raises(KeyboardInterrupt):
        model.fit(long)
    assert_unchanged(model, before)


@within_two_minutes
@pytest.mark.parametrize("n_init", [2, 3])
def test_interrupt_reaches_the_starts_of_all_threads(n_init, interrupt):
    """Ctrl-C is seen by the main thread only, and the starts of the others take long as well."""
    long = np.random.default_rng(0).random((2000, 8))
    model = KFeatures(8, n_init=n_init, n_swaps=10_000, n_threads=2, random_state=0)
    interrupt(0.5)
    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        model.fit(long)
    assert time.perf_counter() - begin < 4


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@within_two_minutes
def test_other_threads_run_during_a_fit():
    """The sweeps let go of the interpreter."""
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(None)
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    data = blobs(np.random.default_rng(0), 100_000, 8, 60)
    thread.start()
    before = len(ticks)
    DPMeans(lam=0.05, max_iter=5).fit(data)
    after = len(ticks)
    KFeatures(8, n_init=1, max_iter=5).fit(data)
    last = len(ticks)
    done.set()
    thread.join()
    assert after - before > 3
    assert last - after > 3


# Good input ---------------------------------------------------------------------------------

DATA = np.round(np.random.default_rng(1).random((300, 4)) * 64)
EXPECTED = DPMeans(lam=800.0).fit(DATA)


def memory_map(tmp_path, order="C"):
    shape = DATA.shape
    path = tmp_path / "data.bin"
    out = np.memmap(path, dtype=np.float32, mode="w+", shape=shape, order=order)
    out[:] = DATA
    out.flush()
    return np.memmap(path, dtype=np.float32, mode="r", shape=shape, order=order)


def read_only(array):
    array.setflags(write=False)
    return array


GOOD_DATA = {
    "float32": lambda _: DATA.astype(np.float32),
    "int64": lambda _: DATA.astype(np.int64),
    "int32": lambda _: DATA.astype(np.int32),
    "uint8": lambda _: DATA.astype(np.uint8),
    "float16": lambda _: DATA.astype(np.float16),
    "big-endian": lambda _: DATA.astype(">f8"),
    "objects that are numbers": lambda _: DATA.astype(object),
    "list": lambda _: DATA.tolist(),
    "Fortran": lambda _: np.asfortranarray(DATA),
    "Fortran, float32": lambda _: np.asfortranarray(DATA.astype(np.float32)),
    "read-only": lambda _: read_only(DATA.copy()),
    "read-only, float32": lambda _: read_only(DATA.astype(np.float32)),
    "every other row": lambda _: np.repeat(DATA, 2, axis=0)[::2],
    "every other column": lambda _: np.repeat(DATA, 2, axis=1)[:, ::2],
    "rows reversed": lambda _: DATA[::-1].copy()[::-1],
    "columns reversed": lambda _: DATA[:, ::-1].copy()[:, ::-1],
    "unaligned": lambda _: (
        np.frombuffer(b"x" + DATA.tobytes(), np.uint8)[1:].view(np.float64).reshape(DATA.shape)
    ),
    "memory map": memory_map,
    "memory map, Fortran": lambda path: memory_map(path, "F"),
    "DataFrame, big-endian": lambda _: pd.DataFrame(DATA.astype(">f8")),
    "DataFrame": lambda _: pd.DataFrame(DATA, columns=list("abcd")),
    "mixed DataFrame": lambda _: pd.DataFrame(DATA, columns=list("abcd")).astype(
        {"a": "int8", "b": "float32"}
    ),
}


VARIANTS = {
    **{estimator.__name__: made(estimator) for estimator in OF_ROWS},
    "BPMeans": BPMeans(lam=2e4, n_init=4, random_state=0),
    "DPMeans": DPMeans(lam=800.0),
    "DPMeans n_clusters": DPMeans(n_clusters=12, random_state=0),
    "DPMeans delayed": DPMeans(lam=800.0, algorithm="delayed"),
    "DPMeans collapsed": DPMeans(lam=800.0, algorithm="collapsed"),
    "DynamicMeans": DynamicMeans(lam=800.0, random_state=0),
    "HDPMeans": HDPMeans(lam_local=800.0, lam_global=800.0),
    "BPMeans collapsed": BPMeans(lam=2e4, algorithm="collapsed", n_init=4, random_state=0),
    "BPMeans stepwise": BPMeans(lam=2e4, algorithm="stepwise", n_init=4, random_state=0),
    "KFeatures exact": KFeatures(3, assign="exact", n_init=4, random_state=0),
    "MiniBatchDPMeans": MiniBatchDPMeans(lam=800.0, random_state=0),
    "RobustDPMeans": RobustDPMeans(lam=800.0, random_state=0),
    "SegmentMeans": SegmentMeans(lam=800.0, lam_switch=40.0),
    "ShapeMeans": ShapeMeans(n_clusters=4, random_state=0),
    "SpectralDPMeans": SpectralDPMeans(lam=20.0, n_init=2, random_state=0),
    "SpectralDynamicMeans": SpectralDynamicMeans(lam=20.0, random_state=0),
}
KIND = pytest.mark.parametrize("kind", VARIANTS)


@cache
def fitted(kind):
    return clone(VARIANTS[kind]).fit(DATA)


@KIND
@pytest.mark.parametrize("name", GOOD_DATA)
def test_good_data(name, kind, tmp_path):
    """All of these hold the same numbers, so they give the same clusters; they are only read."""
    data, expected = GOOD_DATA[name](tmp_path), fitted(kind)
    before = np.array(data)
    model = clone(VARIANTS[kind]).fit(data)
    found = "assignments_" if hasattr(model, "assignments_") else "labels_"
    assert len(np.unique(getattr(expected, found))) > 1
    assert np.array_equal(getattr(model, found), getattr(expected, found))
    # kernels and directions of float32 data are float32
    single = 1e-5 if kind.startswith(("Kernel", "Spe", "Sph")) else 1e-12
    for learned in ("cluster_centers_", "components_", "objective_path_", "objective_"):
        if hasattr(model, learned):
            value = getattr(model, learned)
            assert np.asarray(value).dtype == np.float64
            np.testing.assert_allclose(value, getattr(expected, learned), rtol=single, atol=1e-9)
    for method in METHODS:
        if hasattr(model, method):
            results = getattr(model, method)(data), getattr(expected, method)(DATA)
            np.testing.assert_allclose(*results, rtol=max(single, 1e-6), atol=1e-5)
    assert np.array_equal(np.array(data), before)


WEIGHTS = np.arange(300) % 3


@pytest.mark.parametrize(
    "weights",
    [
        WEIGHTS,
        WEIGHTS.astype(np.float32),
        np.repeat(WEIGHTS, 2)[::2],
        read_only(WEIGHTS.astype(float)),
        WEIGHTS.tolist(),
        pd.Series(WEIGHTS),
    ],
    ids=["int", "float32", "strided", "read-only", "list", "Series"],
)
@pytest.mark.parametrize("kind", [k for k, m in VARIANTS.items() if "sample_weight" in takes(m)])
def test_kinds_of_weights(weights, kind):
    expected = clone(VARIANTS[kind]).fit(DATA, sample_weight=WEIGHTS.astype(float))
    model = clone(VARIANTS[kind]).fit(DATA, sample_weight=weights)
    found = "assignments_" if hasattr(model, "assignments_") else "labels_"
    assert np.array_equal(getattr(model, found), getattr(expected, found))
    assert getattr(model, "objective_", None) == getattr(expected, "objective_", None)


def test_one_weight_for_all_is_a_scalar_as_in_scikit_learn():
    model = DPMeans(lam=800.0).fit(DATA, sample_weight=2.0)
    expected = DPMeans(lam=400.0).fit(DATA)
    assert np.array_equal(model.labels_, expected.labels_)


@pytest.mark.parametrize("exponent", [-500, 500])
def test_scales_whose_squares_leave_the_range_of_float64(exponent):
    data = DATA * 2.0**exponent
    for model in (DPMeans(lam=1.0), DPMeans(lam=1.0).fit(DATA)):
        assert_refuses(model, lambda m: m.fit(data), ValueError, "X must", "1e-?140", "rescale")


@each_exponent
def test_float32_data_beyond_the_range_of_its_squares(exponent):
    """2^160 and 2^-200 are no float32; the distances of such data still are exact."""
    scale = 2.0**exponent
    model = DPMeans(lam=800.0 * scale**2).fit((DATA * scale).astype(np.float32))
    assert np.array_equal(model.labels_, EXPECTED.labels_)
    np.testing.assert_allclose(model.objective_, EXPECTED.objective_ * scale**2, rtol=1e-9)


# Good input for features --------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [-450, -100, 100, 450])
@pytest.mark.parametrize("algorithm", ["sweep", "collapsed", "stepwise"])
def test_extreme_scales_of_features(exponent, algorithm):
    """A power of two changes no digit."""
    scale, options = 2.0**exponent, {"algorithm": algorithm, "n_init": 3, "random_state": 0}
    plain = BPMeans(lam=20_000.0, **options).fit(DATA)
    model = BPMeans(lam=20_000.0 * scale**2, **options).fit(DATA * scale)
    assert plain.n_components_ > 1
    assert np.array_equal(model.assignments_, plain.assignments_)
    np.testing.assert_allclose(model.objective_, plain.objective_ * scale**2, rtol=1e-12)
    for lam in ("auto", "farthest-first"):
        default = BPMeans(lam=lam, n_components=3, **options).fit(DATA)
        model = BPMeans(lam=lam, n_components=3, **options).fit(DATA * scale)
        np.testing.assert_allclose(model.lam_, default.lam_ * scale**2, rtol=1e-12)
        assert np.array_equal(model.assignments_, default.assignments_)


@FEATURES
@pytest.mark.parametrize("scale", [1e-200, 1e200, 1e-160, 1e160])
def test_scales_of_features_whose_squares_leave_the_range_of_float64(estimator, scale):
    for model in (made(estimator), made(estimator).fit(X)):
        assert_refuses(
            model, lambda m: m.fit(X * scale), ValueError, "X must", "1e-?140", "rescale"
        )
    fitted = made(estimator).fit(X)
    for method in ("transform", "score"):
        assert_refuses(fitted, lambda m, f=method: getattr(m, f)(X * 1e200), ValueError, "rescale")


@each_exponent
def test_float32_features_beyond_the_range_of_their_squares(exponent):
    scale = 2.0**exponent
    expected = KFeatures(3, random_state=0).fit(DATA)
    model = KFeatures(3, random_state=0).fit((DATA * scale).astype(np.float32))
    assert np.array_equal(model.assignments_, expected.assignments_)
    np.testing.assert_allclose(model.objective_, expected.objective_ * scale**2, rtol=1e-9)


SCRIPT = textwrap.dedent(
    """
    import sys, warnings
    import numpy as np
    from smallvar import BPMeans, KFeatures

    warnings.simplefilter("ignore")
    X, w = np.random.default_rng(0).random((40, 3)), np.random.default_rng(1).random(40) + 0.1
    size, weight = float(sys.argv[1]), float(sys.argv[2])
    models = [BPMeans(lam=size**2, algorithm=name) for name in ("sweep", "collapsed", "stepwise")]
    for model in [*models, KFeatures(3), KFeatures(3, assign="exact")]:
        try:
            model.fit(X * size, sample_weight=w * weight)
        except ValueError as error:
            assert "weight" in str(error), error
        else:
            assert 0 < model.objective_ < np.inf, model
    """
)


@pytest.mark.parametrize(
    ("size", "weight"), [(1e5, 1e300), (1e130, 1e30), (1e-130, 1e-100), (1, 1e-310), (1, 1e300)]
)
def test_weights_that_leave_the_range_of_float64(size, weight):
    """Refused or right: neither endless nor a crash (hence a process of its own)."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(size), str(weight)],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("algorithm", ["sweep", "collapsed", "coordinate", "exact"])
def test_weights_of_very_different_size(algorithm):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        data = rng.normal(size=(30, 3)) if seed % 2 else rng.integers(-3, 4, size=(30, 3)) * 1.0
        weights = 10.0 ** rng.uniform(-4, 4, size=30)
        if algorithm in ("coordinate", "exact"):
            model = KFeatures(4, assign=algorithm, n_swaps=2, random_state=seed)
        else:
            lam = 10.0 ** rng.uniform(-8, -1) * (weights @ np.square(data).sum(axis=1))
            model = BPMeans(lam=lam, algorithm=algorithm, n_swaps=2, random_state=seed)
        model.fit(data, sample_weight=weights)
        check_features(model, data, weights)


EDGES = {
    "one row": X[:1],
    "one column": X[:, :1],
    "one number": X[:1, :1],
    "zeros": np.zeros((12, 3)),
    "constant": np.full((12, 3), 7.3),
    "constant but one": np.vstack([np.full((11, 3), 0.1), [[5.0, 5.0, 5.0]]]),
    "duplicated rows": np.repeat(X[:4], 5, axis=0),
    "duplicated columns": np.repeat(X[:12], 4, axis=1),
    "opposite rows": np.vstack([X[:6], -X[:6]]),
    "a zero row": np.vstack([X[:11], np.zeros(3)]),
    "more columns than rows": np.random.default_rng(0).random((5, 300)),
}


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("algorithm", ["sweep", "collapsed", "stepwise", "coordinate", "exact"])
def test_edges_of_features(name, algorithm):
    data = EDGES[name]
    k = min(3, len(data))
    for n_swaps in (0, 3):
        options = {"n_swaps": n_swaps, "random_state": 0}
        if algorithm in ("coordinate", "exact"):
            model = KFeatures(k, assign=algorithm, **options).fit(data)
            assert model.n_components_ == k
        else:
            BPMeans(lam="auto", algorithm=algorithm, **options).fit(data)
            model = BPMeans(lam="farthest-first", n_components=k, algorithm=algorithm, **options)
            model.fit(data)
            assert model.n_components_ <= np.linalg.matrix_rank(np.eye(len(data)))
            tiny = BPMeans(lam=1e-9, algorithm=algorithm, **options).fit(data)
            check_features(tiny, data)
            assert algorithm == "stepwise" or tiny.reconstruction_err_ < 1e-4
        check_features(model, data)
        assert model.transform(data).shape == (len(data), model.n_components_)
        if name in ("constant", "one row", "one number", "zeros"):
            fixed = algorithm in ("coordinate", "exact")
            assert model.reconstruction_err_ < 1e-13 or not fixed
            assert fixed or model.n_components_ <= 1
