"""Markers, the --slow switch and fixtures shared by the tests."""

import _thread
import os
import re
import shlex
import signal
import sys
import threading
from collections import Counter

# Matrices of the tests are small, where threads of the BLAS cost more than they bring, most of all
# beside other processes. This must come before numpy is imported; child processes take it over.
for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import helpers  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

# The same examples every time; change derandomize to look for others.
settings.register_profile(
    "smallvar",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("smallvar")

# Every sweep against its twin, every estimator as scikit-learn uses it, and what is installed.
SMOKE = re.compile("equals_twin|worked_example|same_bits|TestEstimator|test_package|test_docs")


def pytest_addoption(parser):
    """Add --slow and --every."""
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    parser.addoption(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="of many random problems or sets of parameters, run every N-th only (slow builds)",
    )


def pytest_configure(config):
    """Register the markers."""
    smoke = config.getoption("-m", default="") == "smoke"
    helpers.every = max(config.getoption("--every"), 12 if smoke else 1)
    config.addinivalue_line("markers", "smoke: a minute's choice of the tests, for packagers")
    config.addinivalue_line("markers", "long: takes seconds; -m 'not long' is for every change")
    config.addinivalue_line("markers", "slow: takes long or needs much memory; run with --slow")
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout(seconds): needs the plugin pytest-timeout")


def pytest_collection_modifyitems(config, items):
    """Skip slow tests unless they are asked for; thin out as --every says."""
    for item in items:
        if SMOKE.search(item.nodeid):
            item.add_marker("smoke")
    every = helpers.every
    if every > 1:
        test_of = [item.nodeid.partition("[")[0] for item in items]
        sets, seen, kept, left_out = Counter(test_of), Counter(), [], []
        for item, test in zip(items, test_of, strict=True):
            loops = hasattr(item.function, "seeds")  # thins itself
            thin = not loops and sets[test] > helpers.MANY and seen[test] % every
            (left_out if thin else kept).append(item)
            seen[test] += 1
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
    if config.getoption("--slow") or "slow" in config.getoption("-m", default=""):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def eight_cores(monkeypatch):
    """Up to eight threads in every loop, whatever this machine has; one without OpenMP."""
    from smallvar._core import config
    from smallvar._sweeps import parallel

    monkeypatch.setattr(config, "_cores", lambda: 8)
    assert config.resolve_threads(8) == (8 if config.openmp_enabled() else 1)
    parallel.guard_loops(False)  # they would go on with one thread where there are fewer cores
    yield
    parallel.guard_loops(True)


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


# The command line


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command line in this process: exit code, standard output, standard error.

    The call is a string, which is taken apart as a shell would; more arguments may follow it.
    Whatever the tests are run with, standard input holds no data.
    """
    from smallvar._cli.main import main

    def run(call, *more):
        code = main([*shlex.split(str(call)), *map(str, more)])
        return code, *capsys.readouterr()

    with open(os.devnull, encoding="utf-8") as null:
        monkeypatch.setattr(sys, "stdin", null)
        yield run


@pytest.fixture
def ran(run):
    """Run what must succeed, without a warning unless one is expected; take its report apart."""

    def ran(*call, warning=""):
        code, out, err = run(*call)
        assert code == 0
        assert warning in err if warning else err == ""
        lines = [line.split(maxsplit=1) for line in out.splitlines() if line]
        return dict(line for line in lines if len(line) == 2)

    return ran


@pytest.fixture
def refused(run):
    """Run what must be refused, in one line on standard error; returns the line."""

    def refused(*call):
        code, out, err = run(*call)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("smallvar: ")
        assert err.endswith("\n")
        return err

    return refused


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """The folder in which the test runs, which holds the files of cli_tables."""
    from cli_tables import FILES

    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path
