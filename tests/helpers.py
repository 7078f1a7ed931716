"""What tests of several files need: loops over random problems, refusals, unchanged estimators."""

import importlib.util
import inspect
import pickle
import re
import subprocess
import sys
import warnings
import zlib
from functools import wraps
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

MANY = 4  # problems; a test with fewer runs with all of them
every = 1  # of many problems, run every so-many-th only (the option --every)


def script(path):
    """A script of the source tree, by its path from there, as a module."""
    path = Path(__file__).parents[1] / path
    if not path.is_file():
        pytest.skip("the source tree is not at hand")
    spec = importlib.util.spec_from_file_location("script_" + path.stem, path)
    module = importlib.util.module_from_spec(spec)
    before = sys.path.copy()
    sys.modules[spec.name] = module  # its dataclasses look there
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = before
    return module


def reproduction(name):
    """A module of docs/reproductions."""
    return script(f"docs/reproductions/{name}.py")


def printed(program, *arguments):
    """The number that a process of its own prints."""
    command = [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def moved(value):
    """A copy as it comes out of a message: its arrays lie in buffers, and may begin at any byte."""
    buffers = []
    message = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    there = [bytearray(b"x" + buffer.raw()) for buffer in buffers]
    return pickle.loads(message, buffers=[memoryview(one)[1:] for one in there])


def some(problems):
    """The first quarter of the problems of a loop within a test, where --every leaves out more."""
    return problems[: len(problems) // min(every, 4)]


def seeds(count):
    """Run a test for each ``seed`` in ``range(count)``: problems that are not cases of their own.

    Where the number depends on the other arguments of the test, ``count`` is a function of them.
    A failure names its seed, and the other seeds have run too.
    """

    def decorate(test):
        signature = inspect.signature(test)
        others = [p for name, p in signature.parameters.items() if name != "seed"]

        def chosen(arguments):
            n = count(**arguments) if callable(count) else count
            if every == 1 or n <= MANY:
                return range(n)
            # so that not all cases of a test get the same ones
            return range(zlib.crc32(repr(arguments).encode()) % every % n, n, every)

        @wraps(test)
        def loop(**arguments):
            skipped, errors = [], {}
            these = chosen({k: v for k, v in arguments.items() if k in loop.case_names})
            for seed in these:
                try:
                    test(seed=seed, **arguments)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except (Exception, pytest.fail.Exception) as error:
                    errors[seed] = error
            if errors:
                first, error = next(iter(errors.items()))
                error.add_note(f"failed with seeds {list(errors)}; this is {first}")
                raise error
            if len(skipped) == len(these):
                raise skipped[0]

        loop.__signature__ = signature.replace(parameters=others)
        loop.seeds = chosen  # looked at by conftest
        loop.case_names = {p.name for p in others} - {"monkeypatch", "tmp_path", "request"}
        return loop

    return decorate


def fit(model, X, sample_weight=None):
    """Fit; whether a ConvergenceWarning came. Others are errors, but for a lam beyond reach."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "one cluster is left")
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(X, sample_weight=sample_weight)
    return len(caught) > 0


def fit_of_any_order(model, X, weights, rng):
    """A fit; rows in other orders get the same labels, and the same bits in all sums."""
    fitted = clone(model).fit(X, sample_weight=weights)
    sums = {"cluster_centers_", "covariances_", "objective_path_", "inertia_"} & {*vars(fitted)}
    for n_threads in (1, 2, 3):
        order = rng.permutation(len(X))
        other = clone(model)
        if hasattr(other, "n_threads"):
            other.set_params(n_threads=n_threads)
        other.fit(X[order], sample_weight=None if weights is None else weights[order])
        assert np.array_equal(other.labels_, fitted.labels_[order])
        for name in sums:
            assert bits(getattr(other, name)) == bits(getattr(fitted, name)), name
    return fitted


def never_rises(path):
    """Whether no value exceeds the one before by more than 1e-9 of the first."""
    return bool(np.all(np.diff(path) <= 1e-9 * path[0]))


def all_partitions(n):
    """Labels of all partitions of n rows, numbered by first appearance."""
    found = [[]]
    for _ in range(n):
        found = [[*labels, c] for labels in found for c in range(max(labels, default=-1) + 2)]
    return found


def bits(value):
    """What is in a value, in comparable form."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, np.random.RandomState):
        return bits(value.get_state())
    if isinstance(value, (list, tuple)):
        return [bits(part) for part in value]
    if isinstance(value, dict):
        return {key: bits(part) for key, part in value.items()}
    return repr(value)


def state(model):
    """What is in all attributes of a model, its generator included."""
    return bits(vars(model))


def snapshot(model):
    """Every attribute: the object itself, and what is in it."""
    return {name: (value, bits(value)) for name, value in vars(model).items()}


def assert_unchanged(model, before):
    """The same attributes, the same objects, the same contents."""
    assert vars(model).keys() == before.keys()
    for name, value in vars(model).items():
        same, content = before[name]
        assert value is same, name
        assert bits(value) == content, name


def assert_refuses(model, call, errors, *words):
    """`call` raises with all the words in one message, and leaves the model as it was."""
    before = snapshot(model)
    with pytest.raises(errors) as caught:
        call(model)
    message = str(caught.value)
    for word in words:
        assert re.search(word, message), f"{word!r} is not in {message!r}"
    assert_unchanged(model, before)


def learned_arrays(model):
    """What a fit has learned but for the path, as bytes; what is no array, as text."""
    values = {name: value for name, value in vars(model).items() if name.endswith("_")}
    values |= {"kept_points_": getattr(model, "kept_points_", [])}
    parts = {k: v if isinstance(v, list) else [v] for k, v in values.items() if k != "path_"}
    arrays = {name: [np.asarray(part) for part in v] for name, v in parts.items()}
    return {
        name: [repr(a.tolist()) if a.dtype == object else a.tobytes() for a in v]
        for name, v in arrays.items()
    }
