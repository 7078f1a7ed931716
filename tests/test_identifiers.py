"""Columns that only number the rows, and columns of whole numbers that tell more."""

import numpy as np
import pytest

from smallvar._core.identifiers import identifies

RNG = np.random.default_rng(0)
GROUPS = np.concatenate([np.arange(1, 153), np.arange(1, 69), np.arange(1, 125)])
ASCENDS = "whole numbers that ascend from row to row"
RUNS = "whole numbers that run from row to row, in groups"
HARDLY_REPEAT = "numbers of the rows, by their name, that hardly repeat"


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("x", np.arange(20.0), ASCENDS),
        ("x", np.cumsum(RNG.integers(1, 3, 60)), ASCENDS),  # some numbers are left out
        ("x", np.arange(0, 900, 30), ASCENDS),
        ("x", np.cumsum(RNG.integers(1, 99, 200)), ASCENDS),
        ("id", np.cumsum(RNG.integers(1, 99, 30)), ASCENDS),
        ("x", GROUPS, RUNS),
        ("x", np.delete(GROUPS, [5, 70, 200]), RUNS),
        ("id", RNG.permutation(50), "whole numbers, each once"),
        ("Unnamed: 0", RNG.permutation(50), "whole numbers, each once"),
        ("#", RNG.permutation(50), "whole numbers, each once"),
        ("Sample Number", RNG.permutation(GROUPS), "numbers of the rows, by their name"),
        ("tweet_id", RNG.integers(10**17, 10**18, 500), HARDLY_REPEAT),
        ("ROWID", RNG.integers(10**6, 10**7, 500), HARDLY_REPEAT),
        ("customerid", RNG.integers(10**6, 10**7, 500), HARDLY_REPEAT),
        ("customerID", RNG.integers(10**6, 10**7, 500), HARDLY_REPEAT),
        ("index", np.repeat(np.arange(1, 51), 4), "numbers of the rows, by their name"),
        ("case", np.where(np.arange(40) == 7, np.nan, RNG.integers(0, 10**6, 40)), HARDLY_REPEAT),
    ],
)  # fmt: skip
def test_numbers_of_rows(name, values, reason):
    assert identifies(np.asarray(values, dtype=float), name) == reason


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("x", np.arange(19.0)),  # too few
        ("x", np.cumsum(RNG.integers(1000, 9000, 40))),  # a trend
        ("rank", RNG.permutation(50)),
        ("number", RNG.integers(2, 11, 81)),  # of vertebrae, or rooms
        ("number", np.sort(RNG.choice(1000, 84, replace=False))[::-1]),
        ("hour", np.tile(np.arange(24), 30)),
        ("day of month", np.concatenate([np.arange(1, 32)] * 12)),
        ("visits no", RNG.poisson(20, 400)),
        ("id", RNG.normal(size=100)),
        ("id", RNG.integers(1, 6, 100)),
        ("idea", RNG.integers(0, 10**6, 100)),
        ("period", np.tile(np.arange(40), 5)),
        ("id", np.full(30, np.nan)),
        ("id", np.full(30, np.inf)),
        ("x", np.arange(300) * 2.0**60),
        ("heat_index", RNG.integers(60, 10**4, 200)),
        ("priceIndex", RNG.integers(60, 10**4, 200)),
        ("paid", RNG.integers(60, 10**4, 200)),
    ],
)
def test_numbers_that_tell_more(name, values):
    assert identifies(np.asarray(values, dtype=float), name) == ""


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i8", "f4", "?"])
def test_types_of_numbers(dtype):
    """Differences of unsigned numbers would wrap, and all be positive."""
    values = RNG.permutation(60).astype(dtype)
    assert identifies(values) == identifies(values[::-1]) == ""
    assert identifies(np.sort(values)) == ("" if dtype == "?" else ASCENDS)


def test_only_the_order_of_ascending_numbers_counts():
    values = RNG.permutation(60).astype(float)
    assert identifies(values) == ""
    assert identifies(np.sort(values)) == ASCENDS
    assert identifies(np.sort(values)[::-1]) == ""
