"""The same bits for any number of threads; fork; fits in several Python threads."""

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from problems import blobs, planted_features

from smallvar import (
    BPMeans,
    DPMeans,
    KFeatures,
    MiniBatchDPMeans,
    _config,
    farthest_first_lambda,
    feature_path,
)

LEARNED = ("labels_", "cluster_centers_", "objective_path_")


def bits(model):
    """Everything that a fit computes, as bytes."""
    arrays = [getattr(model, name).tobytes() for name in LEARNED]
    return [*arrays, float(model.inertia_).hex(), float(model.lam_).hex(), model.n_iter_]


def test_openmp_is_on_with_gcc():
    """A failed probe must not be silent."""
    if not _config.openmp_enabled() and os.environ.get("SMALLVAR_OPENMP") != "0":
        assert not sys.platform.startswith("linux")


# n, d, k of the data; options of the estimator. Many chunks, every path: low and high
# dimensions, few and many centers, creation, weights, both types, all algorithms.
CASES = {
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


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.usefixtures("openmp")
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
        DPMeans(lam, random_state=0, n_threads=t, **options).fit(X, sample_weight=weights)
        for t in (1, 2, 3)
    ]
    assert models[0].n_clusters_ > 3
    assert bits(models[1]) == bits(models[0])
    assert bits(models[2]) == bits(models[0])
    new = X[::-1] + np.asarray(0.01, dtype=X.dtype)
    predicted = [model.predict(new).tobytes() for model in models]
    transformed = [model.transform(new[:3000]).tobytes() for model in models]
    scores = [model.score(new) for model in models]
    assert len(set(predicted)) == len(set(transformed)) == len(set(scores)) == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.usefixtures("openmp")
def test_minibatch_and_penalty_same_bits():
    X = blobs(np.random.default_rng(0), 50_000, 6, 30)
    models = [
        MiniBatchDPMeans(
            "farthest-first", n_clusters=30, random_state=0, max_iter=3, n_threads=t
        ).fit(X)
        for t in (1, 2, 3)
    ]
    for model in models[1:]:
        assert model.cluster_centers_.tobytes() == models[0].cluster_centers_.tobytes()
        assert model.labels_.tobytes() == models[0].labels_.tobytes()
        assert model.lam_ == models[0].lam_


# The estimator; n, d, k of the data, and options. Up to 2^18 values starts are shared out, beyond
# that the points of each, 65,536 in a round.
FEATURES = {
    "sweep, over starts": (BPMeans, 2_000, 9, 6, {"n_init": 7}),
    "sweep, swaps": (BPMeans, 500, 9, 6, {"n_init": 5, "n_swaps": 4, "weights": True}),
    "sweep, over points": (BPMeans, 100_000, 8, 8, {"n_init": 2}),
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
        BPMeans, 50_000, 8, 3, {"algorithm": "stepwise", "n_init": 1, "dtype": np.float32},
    ),
    "coordinate, over starts": (KFeatures, 3_000, 7, 6, {"n_init": 6, "fortran": True}),
    "coordinate, over points": (KFeatures, 100_000, 8, 9, {"n_init": 2, "weights": True}),
    "coordinate, swaps": (KFeatures, 60_000, 16, 8, {"n_init": 1, "n_swaps": 2}),
    "exact, over starts": (KFeatures, 2_000, 7, 5, {"n_init": 6, "assign": "exact"}),
    "exact, over points": (
        KFeatures, 100_000, 8, 7, {"n_init": 1, "assign": "exact", "dtype": np.float32},
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.usefixtures("openmp")
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
    first = k if estimator is KFeatures else 0.01 * float(np.square(X, dtype=float).sum())
    models = [
        estimator(first, n_threads=t, **options).fit(X, sample_weight=weights) for t in (1, 2, 3)
    ]
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
    assert learned[1] == learned[0]
    assert learned[2] == learned[0]
    new = X[::-1] + np.asarray(0.01, dtype=X.dtype)
    assert len({model.transform(new).tobytes() for model in models}) == 1
    assert len({model.score(new, sample_weight=weights) for model in models}) == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.usefixtures("openmp")
def test_path_and_penalty_of_features_same_bits():
    for n in (2_000, 100_000):
        X = planted_features("shared", 0, n=n, d=8, k=4)[0]
        options = {"n_init": 2, "max_iter": 5, "random_state": 0}
        paths = [feature_path(X, 5, n_threads=t, **options) for t in (1, 2, 3)]
        assert len({path.error.tobytes() for path in paths}) == 1
        lams = [BPMeans(max_features=2, n_threads=t, **options).fit(X).lam_ for t in (1, 2, 3)]
        assert lams[1] == lams[2] == lams[0]


def test_features_of_rows_in_any_memory_layout():
    """Neither the layout nor the type that holds the same numbers changes a bit."""
    X, Z, _ = planted_features("signed", 0, n=40_000, d=9, k=4, noise=0.3)
    X = X.astype(np.float32)
    start = Z ^ (np.random.default_rng(0).random(Z.shape) < 0.2)
    plain = BPMeans(4000.0, init=start).fit(X)
    # fmt: off
    others = (
        X.astype(float), np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2],
        X[::-1].copy()[::-1],
    )
    # fmt: on
    assert plain.n_components_ > 1 and plain.n_iter_ > 2
    for other in others:
        model = BPMeans(4000.0, init=start).fit(other)
        assert np.array_equal(model.assignments_, plain.assignments_)
        np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-12)
        np.testing.assert_allclose(model.objective_path_, plain.objective_path_, rtol=1e-12)


def test_rows_may_come_in_any_memory_layout():
    """Labels depend neither on the layout nor on the blocks it is read in."""
    X = blobs(np.random.default_rng(0), 20_000, 7, 25)
    plain = DPMeans(0.05).fit(X)
    for other in (np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], X[::-1].copy()[::-1]):
        assert bits(DPMeans(0.05).fit(other))[0] == bits(plain)[0]


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
            "farthest-first", n_clusters=15, algorithm=algorithm, n_threads=2, random_state=0
        )
        return bits(model.fit(X))

    one_by_one = [run(job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            assert list(pool.map(run, jobs)) == one_by_one


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
        model = BPMeans(lam, algorithm=algorithm, n_init=4, n_threads=2, random_state=0).fit(X)
        return model.assignments_.tobytes(), model.objective_

    one_by_one = [run(job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            assert list(pool.map(run, jobs)) == one_by_one


def test_one_fitted_model_serves_several_threads():
    X = blobs(np.random.default_rng(0), 20_000, 5, 15)
    model = DPMeans("farthest-first", n_clusters=15, n_threads=2).fit(X)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: model.predict(X).tobytes(), range(12)))
    assert set(answers) == {model.labels_.tobytes()}


FORK = textwrap.dedent(
    """
    import os, sys
    import numpy as np
    from smallvar import DPMeans

    X = np.random.default_rng(0).random((60_000, 6))

    def fit():
        model = DPMeans(0.4, n_threads=N_THREADS, max_iter=3).fit(X)
        assert np.array_equal(model.predict(X), model.labels_)
        return model.labels_

    parent = fit()
    children = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            same = np.array_equal(fit(), parent)
            os._exit(0 if same else 7)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert np.array_equal(fit(), parent)
    print(codes)
    """
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS libraries do not survive a fork")
@pytest.mark.parametrize("n_threads", [None, 2])
def test_fit_in_a_forked_child(n_threads):
    """GNU OpenMP hangs when a child uses threads its parent had started."""
    script = "import warnings; warnings.simplefilter('ignore')\n"
    script += FORK.replace("N_THREADS", str(n_threads))
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[0, 0]"


@pytest.mark.parametrize("environment", ["1", None])
def test_default_number_of_threads(environment):
    """OMP_NUM_THREADS is respected."""
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    if environment:
        env["OMP_NUM_THREADS"] = environment
    script = "from smallvar import _config; print(_config.resolve_threads(None))"
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
        "from smallvar import _config; print(_config.resolve_threads(None))"
    )
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=60,
        check=True,
    )  # fmt: skip
    assert run.stdout.strip() == "1"
