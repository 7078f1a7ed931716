"""Rows that change during a fit, or that were not finite: an error or a result, never a crash.

Checks of X say nothing where they are switched off (``assume_finite``), nor of what a callback,
another thread, or another process that has mapped the same file writes to X afterward. A fit runs
in a process of its own, since a fault in compiled code would end that of the tests.
"""

import itertools
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse
import sklearn
from models import MODELS, with_seed
from sklearn.base import clone
from sklearn.datasets import make_blobs
from smallvar._sweeps.residual_density import eigenpairs
from smallvar._sweeps.sums import Stream

from smallvar import (
    BPMeans,
    BregmanDPMeans,
    DPMeans,
    DynamicMeans,
    HDPMeans,
    KernelDPMeans,
    KFeatures,
    MahalanobisMeans,
    MiniBatchDPMeans,
    MixedDPMeans,
    PenalizedCut,
    RobustDPMeans,
    SegmentMeans,
    SphericalDPMeans,
    TopicMeans,
    cluster_path,
    progress_callback,
)
from smallvar._core.linear_algebra import all_pairs, eigh, svd
from smallvar._time.record import covariance_eigenvalues

pytestmark = pytest.mark.filterwarnings("ignore")

BLOBS = make_blobs(600, centers=6, n_features=3, random_state=0)[0]
FEW = BLOBS[:150]
POSITIVE = np.abs(FEW) + 0.1
GRAPH = np.kron(np.eye(5), np.ones((8, 8))) + 0.01
SPARSE = scipy.sparse.random(300, 20, 0.3, format="csr", random_state=0)
SEED = {"random_state": 0}
FITS = {name: (with_seed(name, **model.few), FEW) for name, model in MODELS.items()} | {
    "BPMeans auto": (BPMeans(**SEED), FEW),
    "BPMeans collapsed": (
        BPMeans(lam=100.0, algorithm="collapsed", max_features=8, **SEED),
        FEW,
    ),
    "BPMeans stepwise": (BPMeans(lam=100.0, algorithm="stepwise", **SEED), FEW),
    "BregmanDPMeans": (BregmanDPMeans(divergence="kl", **SEED), POSITIVE),
    "BregmanDPMeans delayed": (BregmanDPMeans(lam=1.0, algorithm="delayed"), POSITIVE),
    "BregmanDPMeans logistic": (
        BregmanDPMeans(divergence="logistic", lam=0.5),
        POSITIVE / POSITIVE.max() * 0.9,
    ),
    "DPMeans": (DPMeans(lam=30.0), BLOBS),
    "DPMeans auto": (DPMeans(**SEED), BLOBS),
    "DPMeans collapsed": (DPMeans(lam=30.0, algorithm="collapsed"), BLOBS),
    "DPMeans delayed": (DPMeans(lam=30.0, algorithm="delayed"), BLOBS.astype(np.float32)),
    "DPMeans merge": (DPMeans(lam=30.0, algorithm="merge", **SEED), BLOBS),
    "DPMeans n_clusters": (DPMeans(n_clusters=5, **SEED), BLOBS),
    "DPMeans sparse": (DPMeans(lam=1.0), SPARSE),
    "DynamicMeans": (DynamicMeans(lam=30.0, **SEED), BLOBS),
    "HDPMeans": (HDPMeans(**SEED), BLOBS),
    "HDPMeans lam": (HDPMeans(lam_local=10.0, lam_global=30.0, **SEED), BLOBS),
    "KernelDPMeans blocks": (KernelDPMeans(lam=1.0, max_memory=1e5), FEW),
    "KernelDPMeans precomputed": (KernelDPMeans(lam=100.0, kernel="precomputed"), FEW @ FEW.T),
    "KFeatures auto": (KFeatures("auto", **SEED), FEW),
    "MahalanobisMeans": (MahalanobisMeans(n_clusters=3, **SEED), BLOBS),
    "MahalanobisMeans auto": (MahalanobisMeans(**SEED), BLOBS),
    "MahalanobisMeans volume": (
        MahalanobisMeans(n_clusters=2, volume="clusters", lam=1.0, scale=30.0, **SEED),
        BLOBS,
    ),
    "MiniBatchDPMeans": (MiniBatchDPMeans(lam=30.0, batch_size=100, **SEED), BLOBS),
    "MiniBatchDPMeans auto": (MiniBatchDPMeans(batch_size=200, **SEED), BLOBS),
    "MiniBatchDPMeans sparse": (MiniBatchDPMeans(lam=1.0, batch_size=60, **SEED), SPARSE),
    "MixedDPMeans": (
        MixedDPMeans(columns={3: "categorical"}, **SEED),
        np.c_[FEW, np.arange(150) % 3],
    ),
    "PenalizedCut": (PenalizedCut(lam=-0.5, n_init=2, **SEED), GRAPH),
    "RobustDPMeans": (RobustDPMeans(**SEED), BLOBS),
    "RobustDPMeans lam": (RobustDPMeans(lam=30.0, price=10.0, **SEED), BLOBS),
    "SegmentMeans lam": (SegmentMeans(lam=30.0, lam_switch=3.0), BLOBS),
    "SphericalDPMeans": (SphericalDPMeans(lam=0.1), BLOBS),
    "SphericalDPMeans auto": (SphericalDPMeans(lam="auto", **SEED), BLOBS),
    "SphericalDPMeans sparse": (SphericalDPMeans(lam=0.5), SPARSE),
    "TopicMeans": (TopicMeans(lam_local=20.0, lam_global=20.0), POSITIVE),
    "TopicMeans auto": (TopicMeans(**SEED), POSITIVE),
}
VALUES = {"NaN": np.nan, "huge": 1e200, "random": None}
EVERY = pytest.mark.parametrize("key", FITS)
each_value = pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])


def refit(model, X):
    """Fit; those of several data sets or steps to several."""
    if type(model).__name__.endswith("HDPMeans"):
        return model.fit(X, groups=np.arange(X.shape[0]) % 4)
    if type(model).__name__.endswith("DynamicMeans"):
        return model.fit(X, times=np.arange(X.shape[0]) // 50)
    return model.fit(X)


def write(X, value, rng):
    """Write to one entry, to some, or to half of them; of sparse rows at random to all arrays."""
    arrays = [X] if isinstance(X, np.ndarray) else [X.data, X.indices, X.indptr]
    entries = arrays[0].reshape(-1)
    at = rng.integers(0, entries.size, (1, 20, entries.size // 2)[rng.integers(3)])
    with np.errstate(over="ignore"):
        entries[at] = rng.normal(size=len(at)) * 100.0 if VALUES[value] is None else VALUES[value]
    for indices in arrays[1:] if VALUES[value] is None else ():
        indices[rng.integers(0, indices.size, 20)] = rng.integers(-(2**31), 2**31 - 1, 20)


def outcome(model, X):
    """The error of a fit, which says what is wrong, or None."""
    try:
        assert refit(model, X) is model
    except ValueError as error:
        text = str(error)
        # "Input X contains NaN" is scikit-learn's, where rows change before they are checked
        named = ("X", "Input", "column", "kernel", "kernel='rbf'", "n_clusters", "reg_covar")
        assert text.split()[0] in named, text
        return text
    return None


def from_callbacks(key):
    """Fits during which a callback writes to X, at five steps, from the first to the last."""
    model, given = FITS[key]
    events, rng = [], np.random.default_rng(0)
    with progress_callback(events.append):
        refit(clone(model), given.copy())
    at = np.linspace(0, len(events) - 1, 5).astype(int).tolist()
    for value, number in itertools.product(VALUES, at):
        X, steps = given.copy(), itertools.count()

        def change(event, X=X, steps=steps, number=number, value=value):
            if next(steps) == number:
                write(X, value, rng)

        with progress_callback(change):
            outcome(clone(model), X)


def from_another_process(key, folder):
    """Fits of a read-only memory map to which another process writes."""
    model, given = FITS[key]
    arrays = [given] if isinstance(given, np.ndarray) else [given.data, given.indices, given.indptr]
    begin = time.perf_counter()
    refit(clone(model), given.copy())
    span = time.perf_counter() - begin
    for number, value in enumerate([*VALUES, *VALUES]):
        maps = []
        for place, array in enumerate(arrays):
            path = os.path.join(folder, f"{number}-{place}")
            np.ascontiguousarray(array).tofile(path)
            maps.append([np.memmap(path, array.dtype, mode, shape=array.shape) for mode in MODES])
        readable, writable = (given_as(given, parts) for parts in zip(*maps, strict=True))
        writer = os.fork()
        if writer == 0:
            rng = np.random.default_rng(number)
            time.sleep(rng.uniform(0, span))
            while os.getppid() != 1:
                write(writable, value, rng)
                time.sleep(0.001)
            os._exit(0)
        try:
            outcome(clone(model), readable)
        finally:
            os.kill(writer, 9)
            os.waitpid(writer, 0)


MODES = ("r", "r+")


def given_as(given, parts):
    """Dense or sparse rows like those given, of these arrays."""
    if isinstance(given, np.ndarray):
        return parts[0]
    X = scipy.sparse.csr_array(given.shape)
    X.data, X.indices, X.indptr = parts
    return X


def from_the_start(key):
    """Fits of rows that scikit-learn was told to assume to be finite."""
    model, given = FITS[key]
    rng = np.random.default_rng(0)
    for value in ["NaN", "huge"] * 3:
        X = given.copy()
        write(X, value, rng)
        with sklearn.config_context(assume_finite=True):
            outcome(clone(model), X)


def run(call):
    """Run a call of this file in a process of its own, for 100 s at most."""
    program = f"import test_changed_rows as t; t.{call}; print('done')"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr[-3000:]


@pytest.mark.long
@EVERY
def test_a_callback_that_changes_the_rows(key):
    run(f"from_callbacks({key!r})")


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@EVERY
def test_another_process_that_changes_the_rows(key, tmp_path):
    run(f"from_another_process({key!r}, {str(tmp_path)!r})")


@pytest.mark.long
@EVERY
def test_rows_that_were_assumed_to_be_finite(key):
    run(f"from_the_start({key!r})")


def test_what_the_error_says():
    X = BLOBS.copy()
    X[3, 1] = np.nan
    message = "X must be finite, and must not change while it is used"
    with sklearn.config_context(assume_finite=True):
        for model in (DPMeans(lam=30.0), DPMeans(n_clusters=5), MiniBatchDPMeans(lam=1.0)):
            with pytest.raises(ValueError, match=message):
                model.fit(X)
        with pytest.raises(ValueError, match="X must be finite, and must not change"):
            MahalanobisMeans(n_clusters=3).fit(X)
        with pytest.raises(ValueError, match=message):
            cluster_path(np.r_[np.nan, np.arange(50.0)][:, None])


@each_value
def test_a_small_batch_that_is_not_finite(value):
    """Its exact sums have digits for its numbers alone: nothing is written outside of them."""
    X, label = np.array([[1.0, value], [2.0, 3.0]]), np.zeros(2, dtype=np.int32)
    stream = Stream.of(np.ones((1, 2)), np.ones(1))
    assert stream.with_rows(X, None, label, 1) is None
    assert stream.with_rows(X, np.ones(2), label, 1) is None
    assert stream.with_rows(X[1:], None, label[1:], 1)[1].tolist() == [1]
    model = MiniBatchDPMeans(lam=30.0).partial_fit(FEW[:20, :2])
    before = model.cluster_centers_.copy()
    message = "X must be"
    with sklearn.config_context(assume_finite=True), pytest.raises(ValueError, match=message):
        model.partial_fit(X)
    assert np.array_equal(model.cluster_centers_, before)


@each_value
def test_decompositions_of_what_is_not_finite(value):
    """No LAPACK routine is called: it might not converge, or not end."""
    A = np.eye(30)
    A[3, 4] = A[4, 3] = value
    half = {"above": 0.5}, {"largest": 3}
    calls = [lambda given=given: eigh(A, **given) for given in ({}, *half)]
    calls += [
        lambda: all_pairs(A),
        lambda: svd(A),
        lambda: eigenpairs(A),
        lambda: covariance_eigenvalues(A),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="X must be finite, and must not change"):
            call()


def test_features_of_errors_that_are_not_finite():
    """Rows that change between two numbers of features: none is described by such an error."""
    X, events = FEW.copy(), []

    def change(event):
        events.append(event)
        X[7, 1] = np.nan

    message = "X must be finite, and must not change"
    with progress_callback(change), pytest.raises(ValueError, match=message):
        KFeatures("auto", random_state=0).fit(X)
    assert events


# An estimator during its own fit


@EVERY
def test_no_callback_fits_the_estimator_that_calls_it(key):
    model, X = FITS[key]
    model = clone(model)
    name = type(model).__name__
    learned, where = "labels_", "by the fit that call"
    if name in ("BPMeans", "KFeatures"):  # their starts call from the threads that they run in
        learned, where = "assignments_", "(by the fit that call|in another thread)"

    def fit_again(event):
        with pytest.raises(RuntimeError, match=f"this {name} is being fitted {where}"):
            refit(model, X)
        assert not hasattr(model, learned)  # it changes at the end
        refit_of_another.append(event)

    refit_of_another = []
    with progress_callback(fit_again):
        refit(model, X)
    assert refit_of_another
    again = refit(clone(model), X)
    assert np.array_equal(getattr(model, learned), getattr(again, learned))


def test_a_callback_may_set_parameters():
    model = DPMeans(lam=30.0)
    with progress_callback(lambda event: model.set_params(lam=2.0)):
        model.fit(BLOBS)
    assert (model.lam_, model.lam) == (30.0, 2.0)


@pytest.mark.parametrize(
    "key", [key for key in FITS if " " not in key and hasattr(FITS[key][0], "predict")]
)
def test_predict_during_a_fit_in_another_thread(key):
    """Labels are those of the fit before or of the one after, never an error."""
    model, X = FITS[key]
    other, half = clone(model), X[: X.shape[0] // 2]
    wanted = [refit(other, data).predict(X).tolist() for data in (X, half)]
    model = refit(clone(model), X)
    ended, found = threading.Event(), []

    def predict():
        while not ended.is_set():
            try:
                found.append(model.predict(X).tolist() in wanted)
            except Exception as error:
                found.append(error)

    thread = threading.Thread(target=predict)
    thread.start()
    for _ in range(3):
        refit(model, half)
        refit(model, X)
    ended.set()
    thread.join()
    assert found and all(value is True for value in found), found[-1]
