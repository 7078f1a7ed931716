"""The fuzz program runs, finds what it should, and its cases are those of their seeds."""

import io

import fuzz
import numpy as np
import pytest


def test_a_case_is_a_matter_of_its_seed():
    programs = [fuzz.Case(seed).program() for seed in range(200)]
    assert programs == [fuzz.Case(seed).program() for seed in range(200)]
    assert len(set(programs)) == 200


def test_every_public_name_is_a_subject():
    assert set(fuzz.PARAMETERS) == set(fuzz.PUBLIC) - {"__version__"}
    assert {fuzz.Case(seed).name for seed in range(3000)} >= set(fuzz.PARAMETERS) - {
        "show_config",
        "progress_callback",
        "get_include",
    }


def test_parameters_are_those_of_the_signatures():
    for name, table in fuzz.PARAMETERS.items():
        if isinstance(fuzz.PUBLIC[name], type):
            assert set(table) == set(fuzz.PUBLIC[name]().get_params()), name


@pytest.mark.timeout(300)
def test_few_cases():
    findings, done = fuzz.campaign(0, 40, workers=1, limit=60, out=io.StringIO())
    assert done == 40
    assert findings == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("os.abort()", "crash"),
        ("time.sleep(60)", "hang"),
        ("raise KeyError('x')", "exception KeyError"),
        ("self.n_init_ = 1; raise MemoryError", "state changed"),
        ("X[...] = 3", "input changed"),
        ("np.float64(1) / 0", "warning RuntimeWarning"),
        ("self.n_init = 5", "a parameter changed"),
    ],
)
def test_what_is_wrong_is_found(wrong, words, monkeypatch, tmp_path):
    """With a fit that does something wrong, in a process of its own like all cases."""
    site = tmp_path / "sitecustomize.py"
    site.write_text(
        "import os, time, numpy as np, smallvar\n"
        "def fit(self, X, *args, **more):\n"
        f"    {wrong}\n"
        "    return self\n"
        "smallvar.DPMeans.fit = fit\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    seed = next(s for s in range(10**6) if plain(fuzz.Case(s)))
    findings, _ = fuzz.campaign(seed, 1, workers=1, limit=10, out=io.StringIO())
    assert [found for found, _ in findings] == [seed]
    assert words in findings[0][1]


def plain(case):
    """Whether a case fits DPMeans to a writable array and does nothing before."""
    kinds = [kind for kind, _, _ in case.steps]
    calls = [about["op"] for kind, _, about in case.steps if kind == "call"]
    arrays = all("=" in text and not text.startswith("X = ") for _, text, _ in case.steps[3:5])
    return (
        case.name == "DPMeans" and case.odd == 0 and arrays and calls[:2] == ["init", "fit"]
        and kinds.index("call") == 3
    )  # fmt: skip


def test_bits_tell():
    """States are compared by every bit."""
    assert fuzz.freeze(0.0) != fuzz.freeze(-0.0)
    assert fuzz.freeze(np.nan) == fuzz.freeze(np.nan)
    assert fuzz.freeze([np.arange(3)]) == fuzz.freeze([np.arange(3)])
    assert fuzz.freeze(np.arange(3)) != fuzz.freeze(np.arange(3.0))
    assert fuzz.freeze({"a": 1}) != fuzz.freeze({"a": True})
