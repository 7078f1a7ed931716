"""The comparison of two builds: when a fit counts as slower."""

import itertools

import pytest
from helpers import script


@pytest.fixture(scope="module")
def regressions():
    return script("tools/regressions.py")


def builds(**seconds):
    """A function in place of run: each call takes the next number of the build and fit."""
    numbers = {name: itertools.cycle(values) for name, values in seconds.items()}
    calls = []

    def run(folder, names, full):
        calls.append((folder, tuple(names)))
        results = {}
        for name in names:
            value = next(numbers[f"{folder}_{name}"])
            if isinstance(value, str):
                results[name] = {"error": value}
            else:
                results[name] = {"seconds": value, "quality": [3, 1.0], "memory": 10}
        return results

    return run, calls


def test_twice_as_slow_is_found(regressions):
    run, _ = builds(old_a=[1.0], new_a=[2.0], old_b=[1.0], new_b=[1.4])
    slower, missing, results = regressions.compare("old", "new", ["a", "b"], run)
    assert slower == ["a"]
    assert missing == {}
    lines = list(regressions.table("old", "new", ["a", "b"], results))
    assert "2.00" in lines[1] and "1.40" in lines[2] and lines[3].split()[-1] == "1.67"


def test_a_lower_limit(regressions):
    """Several commits that each add a tenth are found beside the last release."""
    run, _ = builds(old_a=[1.0], new_a=[1.1**3], old_b=[1.0], new_b=[1.1])
    assert regressions.compare("old", "new", ["a", "b"], run)[0] == []
    assert regressions.compare("old", "new", ["a", "b"], run, limit=1.2)[0] == ["a"]


def test_one_round_within_the_limit_is_enough(regressions):
    # the first round of three turns is slow, the second is not: then a is run no more
    new = [3.0] * 3 + [3.0, 1.2, 3.0] + [3.0] * 3
    run, calls = builds(old_a=[1.0], new_a=new, old_b=[1.0], new_b=[1.0])
    assert regressions.compare("old", "new", ["a", "b"], run)[0] == []
    assert [names for _, names in calls] == [("a", "b")] * 6 + [("a",)] * 6


def test_least_times_count(regressions):
    run, _ = builds(old_a=[1.0, 9.0, 9.0], new_a=[9.0, 9.0, 1.0])
    assert regressions.compare("old", "new", ["a"], run)[0] == []


def test_what_the_build_before_does_not_have_is_passed_over(regressions):
    run, _ = builds(old_a=["no such class"], new_a=[1.0], old_b=[1.0], new_b=[1.0])
    slower, missing, results = regressions.compare("old", "new", ["a", "b"], run)
    assert slower == []
    assert missing == {"a": "no such class"}
    assert len(list(regressions.table("old", "new", ["a", "b"], results))) == 3


def test_what_this_build_cannot_do_fails(regressions):
    run, _ = builds(old_a=[1.0], new_a=["broken"])
    with pytest.raises(SystemExit, match="a: broken"):
        regressions.compare("old", "new", ["a"], run)


def test_the_fits_run(regressions):
    results = regressions.measure(["automatic", "features", "graph"], True)
    assert results["automatic"]["quality"][0] == 5
    assert results["features"]["quality"][0] == 6
    assert all(result["memory"] > 0 for result in results.values())
