"""The same bits for any number of threads; fork; other processes; several Python threads."""

import os
import subprocess
import sys
import textwrap
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl
from helpers import learned_arrays
from problems import blobs, planted_features
from sklearn.base import clone
from sklearn.datasets import make_blobs

import smallvar
from smallvar import (
    BPMeans,
    BregmanDPMeans,
    DPMeans,
    DynamicMeans,
    HDPMeans,
    KernelDPMeans,
    KernelHDPMeans,
    KFeatures,
    MiniBatchDPMeans,
    MixedDPMeans,
    RobustDPMeans,
    SegmentMeans,
    ShapeMeans,
    SpectralDPMeans,
    SpectralDynamicMeans,
    SphericalDPMeans,
    _sweeps,
    farthest_first_lambda,
    feature_path,
)
from smallvar._centers import divergence as divergence_module
from smallvar._core import config
from smallvar._sweeps import parallel

needs_openmp = pytest.mark.skipif(not config.openmp_enabled(), reason="one thread without OpenMP")

THREADS = (1, 2, 3, 5, 8)
LEARNED = ("labels_", "cluster_centers_", "objective_path_")
may_not_converge = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
on_eight_cores = pytest.mark.usefixtures("eight_cores")


def bits(model):
    """Everything that a fit computes, as bytes."""
    arrays = [getattr(model, name).tobytes() for name in LEARNED]
    return [*arrays, float(model.inertia_).hex(), float(model.lam_).hex(), model.n_iter_]


def test_openmp_is_on_with_gcc():
    """A failed probe must not be silent."""
    if not config.openmp_enabled() and os.environ.get("SMALLVAR_OPENMP") != "0":
        assert not sys.platform.startswith("linux")


@pytest.mark.parametrize(
    "model",
    [
        KernelDPMeans(kernel="linear"),
        KernelDPMeans(algorithm="collapsed"),
        KernelHDPMeans(kernel="linear"),
        SpectralDPMeans(random_state=0),
        SpectralDynamicMeans(lam=0.5, random_state=0),
    ],
    ids=str,
)
def test_bits_do_not_depend_on_threads_of_blas(model):
    """Of products, and of eigenvectors."""
    X, _ = make_blobs(600, 67, centers=8, random_state=0)
    learned = []
    for n_threads in (1, 2):
        with threadpoolctl.threadpool_limits(n_threads, "blas"):
            learned.append(learned_arrays(clone(model).fit(X)))
    assert learned[0] == learned[1]


@needs_openmp
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads files of ELF")
def test_compiled_loops_are_parallel():
    """A prange compiled without OpenMP's flags is serial, without a word."""
    folder = Path(_sweeps.__file__).parent
    parallel = set()
    for library in folder.rglob("*.so"):
        content = library.read_bytes()
        if b"GOMP_parallel" in content or b"__kmpc_fork_call" in content:
            parallel.add(library.name.split(".")[0])
            assert any(name in content for name in (b"libgomp", b"libomp", b"libiomp"))
        source = library.with_name(library.name.split(".")[0] + ".pyx")  # not in a wheel
        if source.exists() and " in prange(" in source.read_text():
            assert source.stem in parallel
    assert {"parallel", "nearest_sweep", "means", "sparse", "merge", "in_order"} <= parallel
    loaded = threadpoolctl.threadpool_info()
    assert any(library["user_api"] == "openmp" for library in loaded)


# n, d, k of the data; options of the estimator. Many chunks, every path: low and high
# dimensions, few and many centers, creation, weights, both types, all algorithms.
CASES = {
    "few rows": (7, 2, 5, {}),
    "low d": (100_000, 2, 20, {"max_iter": 15}),
    "one column": (50_000, 1, 9, {"max_iter": 30}),
    "three columns, float32": (60_000, 3, 40, {"dtype": np.float32, "max_iter": 15}),
    "middle d": (100_000, 8, 50, {"max_iter": 12}),
    "middle d, weights": (40_000, 16, 60, {"weights": True, "max_iter": 10}),
    "high d, float32": (20_000, 100, 30, {"dtype": np.float32, "max_iter": 10}),
    "many centers": (30_000, 4, 700, {"max_iter": 4}),
    "given centers": (50_000, 12, 100, {"given": True, "max_iter": 15}),
    "far": (30_000, 5, 30, {"offset": 1e6, "max_iter": 15}),
    "delayed": (40_000, 6, 40, {"algorithm": "delayed", "max_iter": 15}),
    "collapsed": (20_000, 4, 20, {"algorithm": "collapsed", "max_iter": 5}),
    "Fortran order": (40_000, 10, 30, {"fortran": True, "max_iter": 10}),
    "starts": (8_000, 3, 20, {"n_init": 3}),
}


@may_not_converge
@on_eight_cores
@pytest.mark.parametrize("name", CASES)
def test_same_bits_for_any_number_of_threads(name):
    n, d, k, options = CASES[name]
    options = dict(options)
    rng = np.random.default_rng(n)
    X = blobs(rng, n, d, k, spread=0.2) + options.pop("offset", 0)
    X = X.astype(options.pop("dtype", np.float64))
    weights = rng.gamma(1.0, size=n) if options.pop("weights", False) else None
    if options.pop("fortran", False):
        X = np.asfortranarray(X)
    lam = farthest_first_lambda(X[:5000], k)
    if options.pop("given", False):
        options["init"], lam = X[:k].astype(float), 1e30
    models = [
        DPMeans(lam=lam, random_state=0, n_threads=t, **options).fit(X, sample_weight=weights)
        for t in THREADS
    ]
    assert models[0].n_clusters_ > 3
    assert all(bits(model) == bits(models[0]) for model in models[1:])
    new = X[::-1] + np.asarray(0.01, dtype=X.dtype)
    predicted = [model.predict(new).tobytes() for model in models]
    transformed = [model.transform(new[:3000]).tobytes() for model in models]
    scores = [model.score(new) for model in models]
    assert len(set(predicted)) == len(set(transformed)) == len(set(scores)) == 1


# An estimator; n, d, k of the data, and what they are besides: in which type, how long a cluster
# lasts, what fit is told of the rows.
GROUPS, TIMES = {"groups": 40}, {"times": 2}
OTHERS = {
    "batches": (MiniBatchDPMeans(lam="farthest-first", guess=30, max_iter=3), 30_000, 6, 30, {}),
    "path": (DPMeans(), 12_000, 32, 20, {}),
    "path, float32": (DPMeans(), 6000, 32, 20, {"dtype": np.float32}),
    "steps": (DynamicMeans(lam=0.04, n_init=2, max_iter=4), 40_000, 2, 25, TIMES),
    "steps, float32": (
        DynamicMeans(lam=0.24, n_init=2, max_iter=6),
        *(40_000, 12, 25, {**TIMES, "dtype": np.float32}),
    ),
    "data sets": (HDPMeans(lam_local=0.04, lam_global=1.0, max_iter=3), 50_000, 2, 60, GROUPS),
    "data sets, float32": (
        HDPMeans(lam_local=0.05, lam_global=0.5, max_iter=3),
        *(50_000, 7, 60, {**GROUPS, "dtype": np.float32}),
    ),
    "directions": (SphericalDPMeans(min_cosine=0.95), 20_000, 16, 40, {}),
    "directions, path": (SphericalDPMeans(), 5_000, 16, 40, {}),
    "record": (SegmentMeans(lam=9.0, lam_switch=0.5), 30_000, 8, 6, {"groups": 6, "lasting": 100}),
    "numbers": (MixedDPMeans(lam=0.5, max_clusters=40, max_iter=3), 30_000, 5, 9, {}),
    "numbers, path": (MixedDPMeans(n_clusters=4), 30_000, 5, 4, {}),
    "divergence": (
        BregmanDPMeans(lam="farthest-first", divergence="kl", guess=12), 6000, 40, 12, {},
    ),
    "noise": (RobustDPMeans(lam=2.0, price=0.01, max_iter=9), 30_000, 5, 12, {}),
    "noise, float32": (RobustDPMeans(), 6000, 5, 12, {"dtype": np.float32}),
    "pieces": (ShapeMeans(), 6000, 2, 12, {}),
    "pieces, number": (ShapeMeans(n_clusters=9), 30_000, 5, 12, {"dtype": np.float32}),
    "pieces beside noise": (ShapeMeans(n_clusters=5, noise=True), 6000, 3, 4, {}),
}  # fmt: skip


@may_not_converge
@on_eight_cores
@pytest.mark.parametrize("name", OTHERS)
def test_other_estimators_same_bits(name):
    model, n, d, k, about = OTHERS[name]
    rng, about = np.random.default_rng(n), dict(about)
    lasting = about.pop("lasting", 1)
    truth = rng.integers(k, size=n // lasting).repeat(lasting)
    X = np.abs(rng.random((k, d))[truth] + 0.1 + 0.03 * rng.normal(size=(n, d)))
    X = X.astype(about.pop("dtype", np.float64))
    told = {name: np.sort(rng.integers(number, size=n)) for name, number in about.items()}
    if len(name) % 2:
        told["sample_weight"] = rng.gamma(1.0, size=n) + 0.1
    found = []
    for threads in (1, 3):
        model = clone(model).set_params(n_threads=threads)
        if "random_state" in model.get_params():
            model.set_params(random_state=0)
        model.fit(X, **told)
        found.append(learned_arrays(model))
        if hasattr(model, "path_"):
            found[-1]["path"] = [value.tobytes() for value in model.path_.to_dict().values()]
        for method in ("predict", "transform", "score"):
            if hasattr(model, method):
                found[-1][method] = np.asarray(getattr(model, method)(X[::-1])).tobytes()
    assert len(np.unique(model.labels_)) > 1
    assert found[1] == found[0]


# The estimator; n, d, k of the data, and options. Up to 2^18 values starts are shared out, beyond
# that the points of each, 65,536 in a round.
FEATURES = {
    "few rows": (KFeatures, 7, 9, 3, {"n_init": 5}),
    "sweep, over starts": (BPMeans, 2_000, 9, 6, {"n_init": 7}),
    "sweep, swaps": (BPMeans, 500, 9, 6, {"n_init": 5, "n_swaps": 4, "weights": True}),
    "sweep, over points": (BPMeans, 100_000, 8, 8, {"n_init": 2, "n_swaps": 2}),
    "sweep, given": (BPMeans, 100_000, 9, 8, {"given": True, "dtype": np.float32}),
    "sweep, many features": (
        BPMeans, 70_000, 4, 20, {"given": True, "weights": True, "max_iter": 4},
    ),
    "sweep, Fortran order": (BPMeans, 70_000, 33, 6, {"given": True, "fortran": True}),
    "collapsed, over starts": (BPMeans, 300, 6, 5, {"algorithm": "collapsed", "n_init": 5}),
    "collapsed, long": (
        BPMeans, 40_000, 8, 8, {"algorithm": "collapsed", "given": True, "weights": True},
    ),
    "stepwise": (BPMeans, 3_000, 6, 4, {"algorithm": "stepwise", "n_init": 4}),
    "stepwise, over points": (
        BPMeans, 50_000, 8, 3,
        {"algorithm": "stepwise", "n_init": 1, "n_swaps": 2, "dtype": np.float32},
    ),
    "coordinate, over starts": (KFeatures, 3_000, 7, 6, {"n_init": 6, "fortran": True}),
    "coordinate, over points": (
        KFeatures, 100_000, 8, 9, {"n_init": 2, "n_swaps": 2, "weights": True},
    ),
    "coordinate, swaps": (KFeatures, 60_000, 16, 8, {"n_init": 1, "n_swaps": 2}),
    "exact, over starts": (KFeatures, 2_000, 7, 5, {"n_init": 6, "assign": "exact"}),
    "exact, over points": (
        KFeatures, 100_000, 8, 7,
        {"n_init": 1, "n_swaps": 2, "assign": "exact", "dtype": np.float32},
    ),
}  # fmt: skip


@may_not_converge
@on_eight_cores
@pytest.mark.parametrize("name", FEATURES)
def test_features_same_bits_for_any_number_of_threads(name):
    estimator, n, d, k, options = FEATURES[name]
    options = {"max_iter": 6, "random_state": 0, **options}
    X, Z, _ = planted_features("signed", 0, n=n, d=d, k=k, noise=0.5)
    rng = np.random.default_rng(n)
    X = X.astype(options.pop("dtype", np.float64))
    weights = rng.gamma(1.0, size=n) if options.pop("weights", False) else None
    if options.pop("fortran", False):
        X = np.asfortranarray(X)
    if options.pop("given", False):
        options["init"] = Z ^ (rng.random(Z.shape) < 0.2)
    if estimator is KFeatures:
        options["n_components"] = k
    else:
        options["lam"] = 0.01 * float(np.square(X, dtype=float).sum())
    models = [estimator(n_threads=t, **options).fit(X, sample_weight=weights) for t in THREADS]
    learned = [
        [
            model.assignments_.tobytes(),
            model.components_.tobytes(),
            model.objective_path_.tobytes(),
            model.reconstruction_err_.hex(),
            model.n_iter_,
        ]
        for model in models
    ]
    assert models[0].n_components_ > 1
    assert all(one == learned[0] for one in learned[1:])
    new = X[::-1] + np.asarray(0.01, dtype=X.dtype)
    assert len({model.transform(new).tobytes() for model in models}) == 1
    assert len({model.score(new, sample_weight=weights) for model in models}) == 1


@pytest.mark.long
@may_not_converge
@on_eight_cores
def test_path_and_penalty_of_features_same_bits():
    for n in (2_000, 100_000):
        X = planted_features("shared", 0, n=n, d=8, k=4)[0]
        options = {"n_init": 2, "n_swaps": 2, "max_iter": 5, "random_state": 0}
        paths = [feature_path(X, 5, n_threads=t, **options) for t in THREADS]
        assert len({path.error.tobytes() for path in paths}) == 1
        for lam in ("auto", "farthest-first"):
            options = {"lam": lam, "max_features": 2, **options}
            lams = [BPMeans(n_threads=t, **options).fit(X).lam_ for t in THREADS]
            assert len(set(lams)) == 1


def test_features_of_rows_in_any_memory_layout():
    """Neither the layout nor the type that holds the same numbers changes a bit."""
    X, Z, _ = planted_features("signed", 0, n=40_000, d=9, k=4, noise=0.3)
    X = X.astype(np.float32)
    start = Z ^ (np.random.default_rng(0).random(Z.shape) < 0.2)
    plain = BPMeans(lam=4000.0, init=start).fit(X)
    # fmt: off
    others = (
        X.astype(float), np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2],
        X[::-1].copy()[::-1],
    )
    # fmt: on
    assert plain.n_components_ > 1 and plain.n_iter_ > 2
    for other in others:
        model = BPMeans(lam=4000.0, init=start).fit(other)
        assert np.array_equal(model.assignments_, plain.assignments_)
        np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-12)
        np.testing.assert_allclose(model.objective_path_, plain.objective_path_, rtol=1e-12)


@pytest.mark.timeout(180)
def test_fits_in_several_python_threads():
    rng = np.random.default_rng(0)
    jobs = [
        (blobs(rng, 4000 + 500 * i, 2 + i, 15), algorithm)
        for i in range(6)
        for algorithm in ("serial", "delayed", "collapsed")
    ]

    def run(job):
        X, algorithm = job
        model = DPMeans(
            lam="farthest-first", guess=15, algorithm=algorithm, n_threads=2, random_state=0
        )
        return bits(model.fit(X))

    one_by_one = [run(job) for job in jobs]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(2):
            assert list(pool.map(run, jobs)) == one_by_one


@pytest.mark.long
@pytest.mark.timeout(180)
def test_fits_of_features_in_several_python_threads():
    jobs = [
        (planted_features("signed", i, n=200 + 40_000 * (i % 2), d=7, k=4)[0], algorithm)
        for i in range(4)
        for algorithm in ("sweep", "stepwise")
    ]

    def run(job):
        X, algorithm = job
        lam = 0.02 * np.square(X).sum()
        model = BPMeans(
            lam=lam, algorithm=algorithm, n_init=4, n_swaps=2, n_threads=2, random_state=0
        )
        model.fit(X)
        return model.assignments_.tobytes(), model.objective_

    one_by_one = [run(job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            assert list(pool.map(run, jobs)) == one_by_one


def test_one_fitted_model_serves_several_threads():
    X = blobs(np.random.default_rng(0), 20_000, 5, 15)
    model = DPMeans(lam="farthest-first", guess=15, n_threads=2).fit(X)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: model.predict(X).tobytes(), range(12)))
    assert set(answers) == {model.labels_.tobytes()}


# ---- other processes, other threads, the end of the process ----

needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork") or sys.platform == "darwin",
    reason="no fork, or libraries that do not survive it",
)
sees_threads = pytest.mark.skipif(
    not os.path.isdir("/proc/self/task"), reason="only Linux shows the threads of a process"
)

# Sweeps of many short loops, from which a second thread is hardly ever away.
START = """
import os, sys, threading, time, warnings
import numpy as np
from smallvar import BPMeans, DPMeans
from smallvar._core import config
from smallvar._sweeps.parallel import guard_loops

warnings.simplefilter("ignore")
config._cores = lambda: 4
guard_loops(False)  # threads, also where other processes are busy
X = np.random.default_rng(0).random((20_000, 6))

def fit(n_threads=3):
    model = DPMeans(lam=0.4, n_threads=n_threads, max_iter=3).fit(X)
    assert np.array_equal(model.predict(X), model.labels_)
    features = BPMeans(lam=1.0, n_init=6, n_threads=n_threads, max_iter=3, random_state=0)
    features.fit(X[:300])
    return model.labels_.tobytes(), features.objective_

def threads():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 99

"""


def in_a_process(tmp_path, script, **environment):
    """What a script prints; it must end by itself, in time and well."""
    path = tmp_path / "script.py"
    path.write_text(START + textwrap.dedent(script))
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    run = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=120, check=False,
        env={**env, **environment, "PYTHONPATH": str(Path(smallvar.__file__).parents[1])},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.mark.long
@needs_fork
@pytest.mark.parametrize("n_threads", [None, 3])
@pytest.mark.parametrize("asks", [True, False])
def test_fit_in_a_forked_child(tmp_path, n_threads, asks):
    """One thread, also in a child's child, and in a loop that asks for more."""
    script = f"""
    parent = fit({n_threads})
    children = []
    for generation in (1, 2):
        pid = os.fork()
        if pid == 0:
            if generation == 2 and os.fork():
                os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
            alone = config.resolve_threads({n_threads}) == 1
            if not {asks}:
                config.is_forked = lambda: False
            before = threads()
            os._exit(0 if alone and fit({n_threads}) == parent and threads() == before else 7)
        children.append(pid)
    print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
    assert fit({n_threads}) == parent
    """
    # BLAS has threads of its own, and its own ways of coming through a fork
    assert in_a_process(tmp_path, script, OPENBLAS_NUM_THREADS="1") == ["[0,", "0]"]


@pytest.mark.long
@needs_fork
def test_fork_while_another_thread_fits(tmp_path):
    script = """
    parent, end = fit(), []
    def go_on():
        while not end:
            fit()
    others = [threading.Thread(target=go_on) for _ in range(2)]
    for other in others:
        other.start()
    codes = set()
    for i in range(8):
        time.sleep(0.01 * i)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if fit() == parent else 7)
        codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    end.append(1)
    for other in others:
        other.join()
    print(codes)
    """
    assert in_a_process(tmp_path, script, OPENBLAS_NUM_THREADS="1") == ["{0}"]


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    [
        pytest.param("fork", marks=needs_fork),
        pytest.param("multiprocessing", marks=needs_fork),
        "spawn",
        "loky",
        "threading",
    ],
)
def test_workers_of_multiprocessing_and_joblib(tmp_path, method):
    """Fits before, in and after the workers; those in threads of joblib run at the same time."""
    script = f"""
    def job(_):
        return fit()

    def outer(i):
        import joblib
        return joblib.Parallel(2, backend="threading")(joblib.delayed(job)(j) for j in range(2))

    if __name__ == "__main__":
        import joblib, multiprocessing
        first = fit()
        if "{method}" in ("fork", "spawn"):
            with multiprocessing.get_context("{method}").Pool(2) as pool:
                found = pool.map(job, range(4))
        else:
            workers = joblib.Parallel(2, backend="{method}")
            found = sum(workers(joblib.delayed(outer)(i) for i in range(2)), [])
        print(len(found), set(found) == {{first}} == {{fit()}})
    """
    assert in_a_process(tmp_path, script) == ["4", "True"]


@pytest.mark.long
def test_different_estimators_in_several_python_threads(eight_cores):
    """Each finds what it finds alone."""
    X = blobs(np.random.default_rng(0), 30_000, 4, 12)
    times = np.repeat(np.arange(3), 10_000)
    options = {"max_iter": 3, "random_state": 0}
    jobs = [
        lambda: DPMeans(lam=0.1, n_threads=4, max_iter=5).fit(X).labels_,
        lambda: (
            HDPMeans(lam_local=0.2, lam_global=0.5, n_threads=3, max_iter=3)
            .fit(X, groups=times)
            .labels_
        ),
        lambda: DynamicMeans(lam=0.2, n_threads=4, random_state=0).fit(X, times=times).labels_,
        lambda: SegmentMeans(lam=0.2, n_threads=3, max_iter=3).fit(X, groups=times).labels_,
        lambda: BPMeans(lam=3.0, n_threads=3, n_init=6, **options).fit(X[:900]).assignments_,
        lambda: BPMeans(lam=300.0, n_threads=8, n_init=1, **options).fit(X).assignments_,
        lambda: MiniBatchDPMeans(lam=0.1, n_threads=2, **options).fit(X).labels_,
    ]

    def run(job):
        return job().tobytes()

    with warnings.catch_warnings(), ThreadPoolExecutor(6) as pool:
        warnings.simplefilter("ignore")  # of one thread for all
        one_by_one = [run(job) for job in jobs]
        for _ in range(2):
            assert list(pool.map(run, jobs)) == one_by_one


@pytest.mark.long
def test_the_process_ends_whatever_the_threads_do(tmp_path):
    """Asleep, or in the middle of a fit that a daemon thread began."""
    assert in_a_process(tmp_path, "fit(); print(1)") == ["1"]
    script = """
    fit()
    threading.Thread(target=lambda: [fit() for _ in range(10**6)], daemon=True).start()
    time.sleep(0.2)
    print(2)
    """
    assert in_a_process(tmp_path, script) == ["2"]


@sees_threads
@needs_openmp
def test_threads_leave_signals_to_python(tmp_path):
    """SIGINT is the main thread's: every thread that a fit starts blocks it."""
    script = """
    import signal
    before = set(os.listdir("/proc/self/task"))
    fit(3)
    new = set(os.listdir("/proc/self/task")) - before
    for task in new:
        fields = dict(line.split(":", 1) for line in open(f"/proc/self/task/{task}/status"))
        blocked = int(fields["SigBlk"], 16)
        assert blocked >> signal.SIGINT - 1 & 1 and blocked >> signal.SIGTERM - 1 & 1
        assert not blocked >> signal.SIGSEGV - 1 & 1
    print(len(new))
    """
    assert in_a_process(tmp_path, script, OPENBLAS_NUM_THREADS="1") == ["2"]


@sees_threads
@needs_openmp
def test_threads_end_with_the_python_thread_that_fitted(tmp_path):
    script = """
    first, found = fit(), []
    before = threads()
    for _ in range(10):
        other = threading.Thread(target=lambda: found.append(fit()))
        other.start()
        other.join()
    time.sleep(0.5)
    print(set(found) == {first}, threads() <= before + 4)
    """
    assert in_a_process(tmp_path, script, OPENBLAS_NUM_THREADS="1") == ["True", "True"]


@sees_threads
@needs_openmp
def test_where_no_thread_can_be_started(tmp_path):
    """OpenMP would end the process: a fit has one thread."""
    script = """
    import resource
    if len(sys.argv) == 1:
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        resource.setrlimit(resource.RLIMIT_STACK, (2**29, hard))  # of each thread of a new program
        os.execv(sys.executable, [sys.executable, __file__, "again"])
    before = threads()
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, resource.RLIM_INFINITY))
    alone = fit()
    print(threads() - before)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    print(fit() == alone)
    """
    assert in_a_process(tmp_path, script, OPENBLAS_NUM_THREADS="1") == ["0", "True"]


@sees_threads
@needs_openmp
def test_no_more_threads_than_the_machine_can_have(tmp_path):
    script = """
    config._cores = lambda: 3
    few = fit(1)
    before = threads()
    assert fit(100_000) == few
    print(threads() - before)
    """
    assert in_a_process(tmp_path, script, OPENBLAS_NUM_THREADS="1") == ["2"]


def test_number_of_threads_is_capped(monkeypatch):
    monkeypatch.setattr(config, "_cores", lambda: 5)
    monkeypatch.setattr(config, "openmp_enabled", lambda: True)
    monkeypatch.setattr(config, "max_threads", lambda: 2)
    monkeypatch.setattr(config, "_cpus_allowed", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [config.resolve_threads(n) for n in (None, 1, 3, 10**9)] == [2, 1, 3, 5]
    monkeypatch.setattr(config, "max_threads", lambda: 10**9)
    assert [config.resolve_threads(n) for n in (None, 10**9)] == [4, config.MOST_THREADS]
    monkeypatch.setenv("OMP_NUM_THREADS", "10000000000")
    assert config.resolve_threads(None) == config.MOST_THREADS


@pytest.mark.parametrize(("openmp", "forked"), [(False, False), (True, True)])
def test_one_thread_without_openmp_and_in_a_forked_child(monkeypatch, openmp, forked):
    monkeypatch.setattr(config, "openmp_enabled", lambda: openmp)
    monkeypatch.setattr(config, "is_forked", lambda: forked)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert [config.resolve_threads(n) for n in (None, 1, 8)] == [1, 1, 1]


@needs_openmp
def test_threadpoolctl_limits_the_default():
    with threadpoolctl.threadpool_limits(1, user_api="openmp"):
        assert config.resolve_threads(None) == 1


@sees_threads
@needs_openmp
def test_a_fit_under_a_limit_of_one_starts_no_thread(tmp_path):
    """As many as OMP_NUM_THREADS says without the limit."""
    script = """
    import threadpoolctl
    before = threads()
    with threadpoolctl.threadpool_limits(1):
        limited = fit(None)
        print(threads() - before)
    print(fit(None) == limited, threads() - before)
    """
    found = in_a_process(tmp_path, script, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="3")
    assert found == ["0", "True", "2"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"0.20 0.18 0.12 3/98 18536\n", 3),
        (b"120.00 90.10 88.00 128/4000 7", 128),
        (b"5/98", 5),
        (b"0.20 0.18 0.12", 0),
        (b"0.20 0.18 0.12 /98", 0),
        (b"", 0),
    ],
)
def test_running_threads(text, count):
    assert parallel.running_threads(text) == count


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells who is running")
@needs_openmp
def test_a_short_fit_beside_busy_threads_starts_none(tmp_path):
    """It would wait for them; the first loop asks."""
    script = """
    import hashlib
    guard_loops(True)
    idle, data, done = threads(), bytes(10**7), threading.Event()
    def work():
        while not done.is_set():
            hashlib.sha256(data)  # without the GIL
    busy = [threading.Thread(target=work) for _ in range(4 * os.cpu_count())]
    for thread in busy:
        thread.start()
    time.sleep(0.1)
    before = threads()
    DPMeans(lam=0.4, n_threads=3, max_iter=1).fit(X)
    print(threads() - before)
    done.set()
    for thread in busy:
        thread.join()
    while threads() > idle:  # the system may still show a thread that was joined
        time.sleep(0.01)
    guard_loops(False)
    DPMeans(lam=0.4, n_threads=3, max_iter=1).fit(X)
    print(threads() - idle)
    """
    assert in_a_process(tmp_path, script, OPENBLAS_NUM_THREADS="1") == ["0", "2"]


@needs_openmp
@pytest.mark.parametrize(("allowed", "wanted"), [(1, 2), (2, 2), (2, 1)])
def test_blas_is_given_no_more_threads(monkeypatch, eight_cores, allowed, wanted):
    """Who limits BLAS, as joblib does within its workers, means it."""
    X, seen, scores = (
        np.abs(blobs(np.random.default_rng(0), 200, 3, 4)) + 0.1,
        set(),
        divergence_module.DivergenceSweep.start,
    )

    def watched(self, *args):
        libraries = threadpoolctl.threadpool_info()
        seen.update(one["num_threads"] for one in libraries if one["user_api"] == "blas")
        return scores(self, *args)

    monkeypatch.setattr(divergence_module.DivergenceSweep, "start", watched)
    with threadpoolctl.threadpool_limits(allowed, user_api="blas"):
        BregmanDPMeans(lam=1.0, divergence="kl", n_threads=wanted).fit(X)
        assert seen == {min(allowed, wanted)}


@pytest.mark.long
@pytest.mark.parametrize("environment", ["1", None])
def test_default_number_of_threads(environment):
    """OMP_NUM_THREADS is respected."""
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    if environment:
        env["OMP_NUM_THREADS"] = environment
    script = "from smallvar._core import config; print(config.resolve_threads(None))"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=60,
        check=True,
    )  # fmt: skip
    threads = int(run.stdout)
    assert threads == 1 if environment else 1 <= threads <= os.cpu_count()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_default_threads_follow_the_affinity():
    script = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from smallvar._core import config; print(config.resolve_threads(None))"
    )
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=60,
        check=True,
    )  # fmt: skip
    assert run.stdout.strip() == "1"
