"""Bad input gets a clear error and loses nothing; every kind of good input is taken."""

import _thread
import re
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from problems import blobs

from smallvar import DPMeans, MiniBatchDPMeans

X = np.random.default_rng(0).random((40, 3))
BOTH = pytest.mark.parametrize("estimator", [DPMeans, MiniBatchDPMeans], ids=lambda e: e.__name__)


def snapshot(model):
    """Every attribute: the object itself, and a copy of what is in it."""
    return {
        name: (value, value.copy() if isinstance(value, np.ndarray) else value)
        for name, value in vars(model).items()
    }


def assert_unchanged(model, before):
    """The same attributes, the same objects, the same contents."""
    assert vars(model).keys() == before.keys()
    for name, value in vars(model).items():
        same, content = before[name]
        assert value is same, name
        if isinstance(value, np.ndarray):
            assert value.tobytes() == content.tobytes(), name


def assert_refuses(model, call, errors, *words):
    """`call` raises with all the words in one message, and leaves the model as it was."""
    before = snapshot(model)
    with pytest.raises(errors) as caught:
        call(model)
    message = str(caught.value)
    for word in words:
        assert re.search(word, message), f"{word!r} is not in {message!r}"
    assert_unchanged(model, before)


def with_value(value):
    """X with one bad entry at the very end."""
    bad = X.copy()
    bad[-1, -1] = value
    return bad


BAD_DATA = {
    "NaN": (with_value(np.nan), ValueError, "NaN"),
    "infinity": (with_value(np.inf), ValueError, "infinity"),
    "NaN, float32": (with_value(np.nan).astype(np.float32), ValueError, "NaN"),
    "NaN, Fortran": (np.asfortranarray(with_value(np.nan)), ValueError, "NaN"),
    "no rows": (np.empty((0, 3)), ValueError, "0 sample"),
    "no columns": (np.empty((5, 0)), ValueError, "0 feature"),
    "empty list": ([], ValueError, "(?i)array"),
    "1-d": (X[:, 0], ValueError, "2D array"),
    "3-d": (X[None], ValueError, "dim"),
    "scalar": (3.0, ValueError, "2D array"),
    "strings": ([["a", "b", "c"], ["d", "e", "f"]], ValueError, "(?i)string|convert"),
    "objects": (np.array([[{}, 1], [2, 3]], dtype=object), (TypeError, ValueError), "number"),
    "ragged": ([[1.0, 2.0], [3.0]], ValueError, "(?i)inhomogeneous|sequence"),
    "complex": (X + 1j, ValueError, "(?i)complex"),
    "sparse": (scipy.sparse.csr_array(X), (TypeError, ValueError), "(?i)sparse"),
    "missing values": (pd.DataFrame({"a": [1.0, None], "b": [1, 2]}), ValueError, "NaN"),
}


@BOTH
@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data(estimator, name):
    bad, errors, word = BAD_DATA[name]
    assert_refuses(estimator(0.5), lambda m: m.fit(bad), errors, word)
    assert_refuses(estimator(0.5).fit(X), lambda m: m.fit(bad), errors, word)


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("name", BAD_DATA)
@pytest.mark.parametrize("method", ["predict", "transform", "score"])
def test_bad_data_for_a_fitted_model(method, name):
    bad, errors, _ = BAD_DATA[name]
    assert_refuses(DPMeans(0.5).fit(X), lambda m: getattr(m, method)(bad), errors)


@BOTH
@pytest.mark.parametrize("method", ["predict", "transform", "score"])
def test_wrong_number_of_features(estimator, method):
    model = estimator(0.5).fit(X)
    for other in (X[:, :2], np.hstack([X, X])):
        words = (f"{other.shape[1]} feature", "3 feature")
        assert_refuses(model, lambda m, o=other: getattr(m, method)(o), ValueError, *words)


@pytest.mark.parametrize("method", ["predict", "transform", "score"])
def test_not_fitted(method):
    from sklearn.exceptions import NotFittedError

    assert_refuses(DPMeans(), lambda m: getattr(m, method)(X), NotFittedError, "DPMeans")


# Weights, and words of the message besides "sample_weight" (weights that are no vector of the
# right length are scikit-learn's business as well; it says "Sample weights").
BAD_WEIGHTS = {
    "negative": (np.r_[np.ones(39), -0.5], ("-0.5", "0")),
    "all zero": (np.zeros(40), ("zero|positive|> 0",)),
    "NaN": (np.r_[np.ones(39), np.nan], ("NaN|nan",)),
    "infinite": (np.r_[np.ones(39), np.inf], ("inf",)),
    "too short": (np.ones(39), ("39", "40")),
    "too long": (np.ones(41), ("41", "40")),
    "2-d": (np.ones((40, 2)), ("(?i)1D|dim|shape",)),
    "strings": (["a"] * 40, ("(?i)string|convert|number",)),
}


@BOTH
@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_bad_weights(estimator, name):
    weights, words = BAD_WEIGHTS[name]
    if name in ("negative", "all zero"):
        words = (*words, "sample_weight")
    for model in (estimator(0.5), estimator(0.5).fit(X)):
        assert_refuses(model, lambda m: m.fit(X, sample_weight=weights), ValueError, *words)


# Parameter, value, and the words that the message holds besides the parameter's name.
BAD_PARAMETERS = [
    ("lam", 0, ("0", "max_clusters")),
    ("lam", 0.0, ("0", "max_clusters")),
    ("lam", -1.5, ("-1.5", "0")),
    ("lam", float("nan"), ("nan", "0")),
    ("lam", -np.inf, ("-inf", "0")),
    ("lam", "farthest", ("farthest", "farthest-first")),
    ("lam", None, ("None", "number")),
    ("lam", [1.0, 2.0], ("1.0, 2.0",)),
    ("n_clusters", 0, ("0", "1")),
    ("n_clusters", -2, ("-2", "1")),
    ("n_clusters", 41, ("41", "40")),
    ("n_clusters", 2.5, ("2.5",)),
    ("max_clusters", 0, ("0", "1")),
    ("max_clusters", -1, ("-1", "1")),
    ("max_clusters", 1.5, ("1.5",)),
    ("algorithm", "parallel", ("parallel", "serial", "delayed", "collapsed")),
    ("algorithm", None, ("None", "serial", "delayed", "collapsed")),
    ("init", "random", ("random", "mean")),
    ("init", np.zeros((2, 4)), (r"\(2, 4\)", "3")),
    ("init", np.zeros(3), (r"\(3,\)",)),
    ("init", np.zeros((0, 3)), (r"\(0, 3\)",)),
    ("init", np.full((2, 3), np.nan), ("NaN|nan|finite",)),
    ("n_init", 0, ("0", "1")),
    ("n_init", 1.5, ("1.5",)),
    ("max_iter", 0, ("0", "1")),
    ("max_iter", -3, ("-3", "1")),
    ("max_iter", 2.5, ("2.5",)),
    ("tol", -0.1, ("-0.1", "0")),
    ("tol", float("nan"), ("nan", "0")),
    ("tol", "small", ("small",)),
    ("n_threads", 0, ("0", "1")),
    ("n_threads", 1.5, ("1.5",)),
    ("shuffle", "yes", ("yes",)),
    ("random_state", "seed", ("seed",)),
]


@pytest.mark.parametrize(
    ("estimator", "name", "value", "words"),
    [
        pytest.param(estimator, *bad, id=f"{estimator.__name__}-{bad[0]}={str(bad[1])[:12]}")
        for estimator in (DPMeans, MiniBatchDPMeans)
        for bad in BAD_PARAMETERS
        if bad[0] in estimator().get_params()
    ],
)
def test_bad_parameter(estimator, name, value, words):
    arguments = {"lam": "farthest-first" if name == "n_clusters" else 0.5}
    if name == "random_state" and estimator is DPMeans:
        arguments["shuffle"] = True
    words = words if name == "random_state" else (name, *words)
    fitted = estimator(0.5).fit(X).set_params(**{**arguments, name: value})
    for model in (estimator(**{**arguments, name: value}), fitted):
        assert_refuses(model, lambda m: m.fit(X), (TypeError, ValueError), *words)


def test_bad_values_raise_value_error():
    """TypeError is for a wrong type only."""
    for arguments in (
        {"lam": -1.0}, {"lam": "none"}, {"lam": 0}, {"n_clusters": 41}, {"algorithm": "x"},
        {"init": np.zeros((2, 4))}, {"n_threads": 0}, {"max_iter": 0}, {"max_clusters": 0},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(arguments))):
            DPMeans(**arguments).fit(X)


@BOTH
def test_more_centers_than_the_cap(estimator):
    model = estimator(0.5, init=X[:4], max_clusters=3)
    assert_refuses(model, lambda m: m.fit(X), ValueError, "init", "max_clusters", "4", "3")


def test_lam_zero_with_a_cap_is_allowed():
    assert DPMeans(0, max_clusters=5).fit(X).n_clusters_ == 5


def test_numpy_scalars_are_numbers():
    model = DPMeans(np.float32(0.25), max_clusters=np.int64(5), max_iter=np.int32(9)).fit(X)
    assert model.lam_ == 0.25
    assert DPMeans(1).fit(X).lam_ == 1.0


@pytest.mark.filterwarnings("ignore:X has feature names")
def test_refused_partial_fit():
    """It changes nothing either."""
    for model in (MiniBatchDPMeans(0.5), MiniBatchDPMeans(0.5).partial_fit(X)):
        for bad, errors, word in BAD_DATA.values():
            assert_refuses(model, lambda m, b=bad: m.partial_fit(b), errors, word)


# Interruption -------------------------------------------------------------------------------


@pytest.fixture
def interrupt():
    """Returns a function that lets Ctrl-C happen so many seconds from now."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    timers = []

    def after(seconds):
        timers.append(threading.Timer(seconds, _thread.interrupt_main))
        timers[-1].start()

    yield after
    for timer in timers:
        timer.cancel()
    signal.signal(signal.SIGINT, handler)


@pytest.mark.timeout(120, method="thread")
@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("algorithm", ["serial", "delayed", "collapsed"])
def test_interrupt(algorithm, fitted, interrupt):
    """A fit of minutes stops, and the model is what it was before."""
    long = np.random.default_rng(0).random((400_000, 8))
    model = DPMeans(1e-12, algorithm=algorithm)
    if fitted:
        model.fit(X)
    before = snapshot(model)
    interrupt(0.5)
    with pytest.raises(KeyboardInterrupt):
        model.fit(long)
    assert_unchanged(model, before)
    assert model.fit(X).n_clusters_ == 40


@pytest.mark.timeout(120, method="thread")
def test_interrupt_of_the_penalty(interrupt):
    long = np.random.default_rng(0).random((1_000_000, 8))
    model = DPMeans(n_clusters=900_000)
    before = snapshot(model)
    interrupt(0.5)
    with pytest.raises(KeyboardInterrupt):
        model.fit(long)
    assert_unchanged(model, before)


@pytest.mark.timeout(120, method="thread")
def test_interrupt_of_the_minibatch_estimator(interrupt):
    model = MiniBatchDPMeans(0.5, random_state=0).fit(X)
    before = snapshot(model)
    model.set_params(lam=1e-12, max_iter=10**6)
    before["lam"], before["max_iter"] = (model.lam,) * 2, (model.max_iter,) * 2
    interrupt(0.5)
    with pytest.raises(KeyboardInterrupt):
        model.fit(np.random.default_rng(0).random((300_000, 8)))
    assert_unchanged(model, before)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.timeout(120, method="thread")
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
    DPMeans(0.05, max_iter=5).fit(data)
    after = len(ticks)
    done.set()
    thread.join()
    assert after - before > 3


# Good input ---------------------------------------------------------------------------------

DATA = np.round(np.random.default_rng(1).random((300, 4)) * 64)
EXPECTED = DPMeans(800.0).fit(DATA)


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
    "DataFrame": lambda _: pd.DataFrame(DATA, columns=list("abcd")),
    "mixed DataFrame": lambda _: pd.DataFrame(DATA, columns=list("abcd")).astype(
        {"a": "int8", "b": "float32"}
    ),
}


@pytest.mark.parametrize("name", GOOD_DATA)
@pytest.mark.parametrize("algorithm", ["serial", "delayed", "collapsed"])
def test_good_data(name, algorithm, tmp_path):
    """All of these hold the same numbers, so they give the same clusters."""
    data = GOOD_DATA[name](tmp_path)
    expected = EXPECTED if algorithm == "serial" else DPMeans(800.0, algorithm=algorithm).fit(DATA)
    model = DPMeans(800.0, algorithm=algorithm).fit(data)
    assert expected.n_clusters_ > 5
    assert np.array_equal(model.labels_, expected.labels_)
    assert model.cluster_centers_.dtype == np.float64
    np.testing.assert_allclose(model.cluster_centers_, expected.cluster_centers_, rtol=1e-14)
    np.testing.assert_allclose(model.objective_path_, expected.objective_path_, rtol=1e-12)
    assert np.array_equal(model.predict(data), model.labels_)
    np.testing.assert_allclose(model.transform(data), expected.transform(DATA), rtol=1e-6)
    np.testing.assert_allclose(model.score(data), -model.objective_, rtol=1e-9)


@BOTH
@pytest.mark.parametrize("name", ["float32", "int64", "Fortran", "read-only", "every other row"])
def test_data_is_not_written_to(estimator, name, tmp_path):
    data = GOOD_DATA[name](tmp_path)
    before = data.copy()
    estimator(800.0, random_state=0).fit(data)
    assert np.array_equal(data, before)


def test_feature_names():
    frame = pd.DataFrame(DATA, columns=["width", "height", "depth", "mass"])
    model = DPMeans(800.0).fit(frame)
    assert model.feature_names_in_.tolist() == ["width", "height", "depth", "mass"]
    with pytest.raises(ValueError, match=r"(?i)feature names"):
        model.predict(frame[["height", "width", "depth", "mass"]])
    assert not hasattr(DPMeans(800.0).fit(DATA), "feature_names_in_")


@pytest.mark.parametrize(
    "weights",
    [
        np.arange(300) % 3,
        (np.arange(300) % 3).astype(np.float32),
        np.repeat(np.arange(300) % 3, 2)[::2],
        read_only((np.arange(300) % 3).astype(float)),
        (np.arange(300) % 3).tolist(),
        pd.Series(np.arange(300) % 3),
    ],
    ids=["int", "float32", "strided", "read-only", "list", "Series"],
)
def test_kinds_of_weights(weights):
    expected = DPMeans(800.0).fit(DATA, sample_weight=(np.arange(300) % 3).astype(float))
    model = DPMeans(800.0).fit(DATA, sample_weight=weights)
    assert np.array_equal(model.labels_, expected.labels_)
    assert model.objective_ == expected.objective_


def test_one_weight_for_all_is_a_scalar_as_in_scikit_learn():
    model = DPMeans(800.0).fit(DATA, sample_weight=2.0)
    expected = DPMeans(400.0).fit(DATA)
    assert np.array_equal(model.labels_, expected.labels_)


@pytest.mark.parametrize("exponent", [-450, -100, 100, 450])
def test_extreme_scales(exponent):
    """A power of two changes no digit."""
    scale = 2.0**exponent
    model = DPMeans(800.0 * scale**2).fit(DATA * scale)
    assert np.array_equal(model.labels_, EXPECTED.labels_)
    np.testing.assert_allclose(model.objective_, EXPECTED.objective_ * scale**2, rtol=1e-9)


@pytest.mark.parametrize("exponent", [-500, 500])
def test_scales_whose_squares_leave_the_range_of_float64(exponent):
    data = DATA * 2.0**exponent
    for model in (DPMeans(1.0), DPMeans(1.0).fit(DATA)):
        assert_refuses(model, lambda m: m.fit(data), ValueError, "X must", "1e-?140", "rescale")


@pytest.mark.parametrize("exponent", [-100, 80, 120])
def test_float32_data_beyond_the_range_of_its_squares(exponent):
    """2^160 and 2^-200 are no float32; the distances of such data still are exact."""
    scale = 2.0**exponent
    model = DPMeans(800.0 * scale**2).fit((DATA * scale).astype(np.float32))
    assert np.array_equal(model.labels_, EXPECTED.labels_)
    np.testing.assert_allclose(model.objective_, EXPECTED.objective_ * scale**2, rtol=1e-9)
