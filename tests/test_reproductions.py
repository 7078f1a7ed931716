"""The scripts of docs/reproductions: all are known to run.py, and say what they do."""

import itertools
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import reproduction

import smallvar

FOLDER = Path(__file__).parents[1] / "docs" / "reproductions"

# Each as a script of its own, but in one process: what they import takes longer than they do.
HELP = """
import io, os, runpy, sys
from contextlib import redirect_stdout
sys.path.insert(0, os.path.dirname(sys.argv[1]))
for path in sys.argv[1:]:
    sys.argv[:] = [path, "--help"]
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if end.code == 0 and "usage:" in printed.getvalue():
            print(path, printed.getvalue().count("--quick"), printed.getvalue().count("--figure"))
            continue
    raise RuntimeError(f"no help of {path}: {printed.getvalue()}")
"""


@pytest.fixture(scope="module")
def run():
    """The module run.py."""
    return reproduction("run")


def result(name):
    """The text of a file of results; the sdist has none."""
    path = FOLDER / "results" / name
    if not path.is_file():
        pytest.skip(f"results/{name} is not at hand")
    return path.read_text(encoding="utf-8")


def test_results_are_those_of_the_code(run):
    """Files of results have a checksum, and pages show these and no others; which are stale."""
    sums = json.loads(result("sources.json"))
    results = FOLDER / "results"
    files = {path.stem for path in results.glob("*.txt")}
    assert files == set(sums)
    if (FOLDER.parent / "guide").is_dir():
        pages = [path.read_text(encoding="utf-8") for path in FOLDER.parent.rglob("*.rst")]
        shown = {name for page in pages for name in re.findall(r"results/([a-z_]+)\.txt", page)}
        assert shown == files
    # no failure: to change a name in a script of an hour is no reason to wait for it
    stale = [name for name in sorted(files) if run.checksum(name) != sums[name]]
    if stale:
        pytest.skip(f"stale: python docs/reproductions/run.py {' '.join(stale)}")


def test_results_of_long_scripts_are_kept(tmp_path, monkeypatch):
    """What was computed is read again, for the same code only; without a folder nothing is."""
    resumed, script = reproduction("resume").resumed, tmp_path / "script.py"
    script.write_text("first")
    monkeypatch.setattr(sys, "argv", [str(script)])
    calls = []

    def compute():
        calls.append(1)
        return [[1.5, 2], [3, np.pi]]

    monkeypatch.delenv("SMALLVAR_RESUME", raising=False)
    for _ in range(2):
        resumed(("a/b", 1), compute)
    assert len(calls) == 2
    monkeypatch.setenv("SMALLVAR_RESUME", str(tmp_path / "kept"))
    for count in (3, 3, 4, 4):
        found = resumed(("a/b", 1 if count == 3 else 2), compute)
        np.testing.assert_array_equal(found, [[1.5, 2], [3, np.pi]])
        assert len(calls) == count
    script.write_text("second")
    resumed(("a/b", 1), compute)
    assert len(calls) == 5


def test_readme_shows_the_results_of_fresh_sets():
    """The README has one table with figures, whose rows are of results/number.txt."""
    path = FOLDER.parents[1] / "README.md"
    if not path.is_file():
        pytest.skip("the source tree is not at hand")
    text = result("number.txt")
    results = {}
    for kind, sets, exact in re.findall(r"(?m)^([\w ]+), [\w ,()]+? {2,}(\d+) +(\d+) +\d", text):
        results.setdefault(kind, [sets]).append(exact)
    readme = path.read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\|[^|]*" + 4 * r"\| (\d+) +" + r"\|$", readme)
    assert [list(row) for row in rows] == list(results.values())
    assert len(re.findall(r"(?m)^\|.*\| [\d.]+ +\|$", readme)) == len(rows)
    tables = re.findall(r"(?m)^(?:real|more) \w+, \S+: (\d+), found (\d+)", text)
    other = sum(true != found for true, found in tables)
    assert re.search(rf"another\s+one\s+for\s+{other}\s+of\s+the\s+{len(tables)}\.", readme)


def test_the_sets_with_a_wrong_number():
    """The guide lists all real sets whose number is wrong, as in results/known_k.txt."""
    path = FOLDER.parent / "guide" / "how_often_right.rst"
    if not path.is_file():
        pytest.skip("the source tree is not at hand")
    text = result("known_k.txt")
    line = r"(?m)^smallvar DPMeans\(\), (.+): (\d+), found (\d+), .* confidence 0(\.\d+)$"
    results = re.findall(line, text)
    real = int(re.search(r"smallvar DPMeans\(\), (\d+) real", text)[1])  # they stand first
    wrong = {row[0]: row[1:] for row in results[:real] if row[1] != row[2]}
    page = path.read_text(encoding="utf-8")
    page = page[page.index(".. _fails:") :]
    rows = re.findall(r"(?m)^(\w+(?:, \w+)?) +(\d+) +(\d+) +(\.\d+)  +\w", page)
    assert {name: tuple(cells) for name, *cells in rows} == wrong


def test_a_checksum_is_of_the_code(run, tmp_path, monkeypatch):
    """Docstrings, comments and blank lines do not count; what a script imports does."""
    monkeypatch.setattr(run, "HERE", tmp_path)
    texts = {"script": 'import other\nprint("a")\n', "other": "x = 1\n"}

    def checksum(**changes):
        for name, text in {**texts, **changes}.items():
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return run.checksum("script")

    before = checksum()
    same = '"""What it does."""\n\nimport other\n# a comment\nprint("a")\n'
    assert checksum(script=same) == before
    assert checksum(script='import other\nprint("b")\n') != before
    assert checksum(other="x = 2\n") != before


def imported():
    """Modules that scripts import."""
    names = set()
    for path in FOLDER.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        names |= set(re.findall(r"(?m)^\s*(?:from|import) (\w+)", text)) - {path.stem}
    return names


def test_every_script_is_in_the_table_or_imported(run):
    files = {path.stem for path in FOLDER.glob("*.py")} - {"run"}
    assert set(run.SCRIPTS) <= files
    assert files - set(run.SCRIPTS) <= imported()
    # what is not in the table must not be a program
    for name in files - set(run.SCRIPTS):
        text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        assert 'if __name__ == "__main__"' not in text, name


@pytest.mark.long
@pytest.mark.timeout(300)
def test_help(run):
    """Every script explains itself, knows --quick, and --figure where the table says so."""
    for package in ("dask", "distributed", "matplotlib", "networkx", "PIL"):
        pytest.importorskip(package)
    paths = [str(FOLDER / f"{name}.py") for name in run.SCRIPTS]
    environment = os.environ | {"MPLBACKEND": "Agg", "COLUMNS": "1000"}
    result = subprocess.run(
        [sys.executable, "-c", HELP, *paths], capture_output=True, text=True, check=False,
        env=environment,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = [line.rsplit(maxsplit=2) for line in result.stdout.splitlines()]
    assert [Path(path).stem for path, _, _ in lines] == list(run.SCRIPTS)
    for path, quick, figure in lines:
        assert int(quick) > 0, path
        assert (int(figure) > 0) == run.SCRIPTS[Path(path).stem].figure, path


@pytest.fixture(scope="module")
def number():
    """The module number.py."""
    return reproduction("number")


class TestNumber:
    """Sets and judgments of number.py."""

    def test_generated_sets(self, number):
        """Labels are 0, 1, ..., all there; a seed gives the same sets, another one others."""
        first, again, other = (list(number.generated(seed)) for seed in (0, 0, 1))
        assert len({(kind, name) for kind, name, _, _ in first}) == len(first) == len(other)
        assert {kind for kind, *_ in first} == {"generated", "single", "pairs"}
        for (kind, name, X, truth), same, another in zip(first, again, other, strict=True):
            assert np.isfinite(X).all() and len(X) == len(truth), name
            assert set(truth.tolist()) == set(range(truth.max() + 1)), name
            assert (truth.max() == 0) == (kind == "single"), name
            assert np.array_equal(X, same[2]) and not np.array_equal(X, another[2]), name

    @pytest.mark.parametrize(
        ("labels", "truth", "expected"),
        [
            ([0] * 500 + [1] * 500, [0] * 500 + [1] * 500, (True, False, False, 2)),
            ([0, 1] * 500, [0] * 500 + [1] * 500, (False, False, False, 2)),
            ([0] * 1000, [0] * 500 + [1] * 500, (False, True, False, 1)),
            ([-1] * 1000, [0] * 1000, (True, False, False, 1)),
            ([0] * 998 + [1, 1], [0] * 1000, (True, False, False, 1)),
            ([0, 1, 2, 3, 4] * 200, [0] * 500 + [1] * 500, (False, False, True, 5)),
        ],
    )
    def test_judgment(self, number, monkeypatch, labels, truth, expected):
        """Right by chance is wrong, small clusters do not count, noise alone is one cluster."""
        monkeypatch.setitem(number.METHODS, "given", lambda X, seed: np.array(labels))
        row = number.result_of("given", np.zeros((1000, 1)), np.array(truth))
        assert (row["exact"], row["one"], row["over"], row["found"]) == expected


@pytest.fixture(scope="module")
def shapes():
    """The module shapes.py."""
    return reproduction("shapes")


class TestShapes:
    """Sets and judgments of shapes.py."""

    def test_sets(self, shapes):
        """Labels are 0, 1, ..., all there; a seed gives the same sets, another one others."""
        first, again, other = (list(shapes.generated(seed)) for seed in (0, 0, 1))
        assert len({(kind, name) for kind, name, _, _ in first}) == len(first) == len(other)
        assert {kind for kind, *_ in first} == {"shapes", "single", "compact"}
        for (kind, name, X, (truth,)), same, another in zip(first, again, other, strict=True):
            assert np.isfinite(X).all() and len(X) == len(truth), name
            assert set(truth.tolist()) == set(range(truth.max() + 1)), name
            assert (truth.max() == 0) == (kind == "single" or name.startswith("arc")), name
            assert np.array_equal(X, same[2]) and not np.array_equal(X, another[2]), name

    def test_limits(self, shapes):
        """Rows of each kind differ with the value; only rows of noise have a negative label."""
        for title, (make, values) in shapes.LIMITS.items():
            sets = [make(np.random.default_rng(0), value) for value in values]
            assert len({X.tobytes() for X, _ in sets}) == len(values), title
            for X, truth in sets:
                assert np.isfinite(X).all() and len(X) == len(truth), title
                assert {0, 1} <= set(truth.tolist()) <= {-1, 0, 1}, title

    @pytest.mark.parametrize(
        ("labels", "truths", "expected"),
        [
            ([0, 1], [[0, 1]], ([2], 2, True, 1.0)),
            ([0, 1], [[0, 0], [0, 1]], ([1, 2], 2, True, 1.0)),  # any labeling will do
            ([0, 0], [[0, 1]], ([2], 1, False, 0.0)),
            ([-1, -1], [[0, 0]], ([1], 1, True, 1.0)),  # noise alone counts as one
            ([0, -1], [[0, -1]], ([1], 1, True, 1.0)),  # rows without a true cluster
        ],
    )
    def test_judgment(self, shapes, monkeypatch, labels, truths, expected):
        monkeypatch.setitem(shapes.METHODS, "given", lambda X: np.repeat(labels, 500))
        truths = [np.repeat(truth, 500) for truth in truths]
        assert shapes.result_of("given", np.zeros((1000, 1)), truths)[:4] == expected

    def test_small_clusters_do_not_count(self, shapes, monkeypatch):
        labels = np.repeat([0, 1], [996, 4])
        monkeypatch.setitem(shapes.METHODS, "given", lambda X: labels)
        row = shapes.result_of("given", np.zeros((1000, 1)), [np.zeros(1000, dtype=int)])
        assert row[1:3] == (1, True)


@pytest.fixture(scope="module")
def scaling():
    """The module scaling.py."""
    return reproduction("scaling")


class TestScaling:
    """Cases, exponents, and the numbers of asv, for a family of five cases."""

    @pytest.fixture
    def family(self, scaling):
        points = scaling.FAMILIES[0]
        sizes = {"base": (1000, 4, 5), "rows": (100, 1000, 10_000), "columns": (4, 16)}
        return type("Few", (points,), {**sizes, "clusters": (5, 20)})

    def test_every_estimator_has_a_rival(self, scaling):
        ours = {name for name in smallvar.__all__ if hasattr(getattr(smallvar, name), "fit")}
        assert {family.names[0] for family in scaling.FAMILIES} == ours

    def test_without_the_rival(self, scaling, family, capsys):
        """Exponents are of ours, ratios of nothing."""
        times = dict.fromkeys(itertools.product(family.cases, family.names), scaling.NOTHING)
        times |= {
            (case, "DPMeans"): (n * 1.0, k, 1.0, 0.0) for case, (n, d, k) in family.cases.items()
        }
        scaling.table(family, times)
        scaling.summary({family: times})
        last = capsys.readouterr().out.splitlines()[-2].split()
        assert last[:3] == ["DPMeans", "1.00", "0.00"] and last[-2:] == ["nan", "nan"]

    def test_cases_vary_one_number(self, scaling, family):
        names = {
            "rows": ["100 x 4, 5 clusters", "1000 x 4, 5 clusters", "10k x 4, 5 clusters"],
            "columns": ["1000 x 4, 5 clusters", "1000 x 16, 5 clusters"],
            "clusters": ["1000 x 4, 5 clusters", "1000 x 4, 20 clusters"],
        }
        assert set(family.cases) == {name for axis in names.values() for name in axis}
        assert family.params == [list(family.cases), ["DPMeans", "KMeans"]]
        for axis, cases in names.items():
            assert [case for _, case in scaling.along(family, axis)] == cases
        assert [n for n, _ in scaling.along(family, "columns")] == [4, 16]

    def test_exponents(self, scaling, family):
        """Of time = rows^2 sqrt(columns); where there is one number only, there is none."""
        found = {
            (case, "DPMeans"): (n**2 * d**0.5, k, 1.0) for case, (n, d, k) in family.cases.items()
        }
        slopes = [scaling.exponent(family, found, axis, "DPMeans") for axis in scaling.AXES]
        assert slopes == pytest.approx([2.0, 0.5, 0.0], abs=1e-12)
        found["1000 x 16, 5 clusters", "DPMeans"] = (float("nan"), 5, 1.0)
        assert math.isnan(scaling.exponent(family, found, "columns", "DPMeans"))

    def test_a_series_ends(self, scaling, family, monkeypatch):
        """After a fit that takes too long or needs too much, and where a process is killed."""
        long = {
            "seconds": (61.0, 3, 1.0, 0.0),
            "bytes": (1.0, 3, 1.0, 9e9),
            "killed": scaling.NOTHING,
        }
        for end in long.values():
            shown = {"100 x 4, 5 clusters": (1.0, 3, 1.0, 0.0), "1000 x 4, 5 clusters": end}
            monkeypatch.setattr(scaling, "in_a_process", lambda work, f, case, *_: shown[case])  # noqa: B023
            found = scaling.measure(family, "DPMeans")
            assert set(found) == {(case, "DPMeans") for case in family.cases}
            left = [numbers for (case, _), numbers in found.items() if case not in shown]
            assert len(left) == 3 and np.isnan(left).all()

    def test_a_killed_process(self, scaling):
        assert scaling.in_a_process(abs, -3) == 3
        assert np.isnan(scaling.in_a_process(os._exit, 1)).all()

    def test_what_is_kept(self, scaling, family, monkeypatch, tmp_path):
        """A series is measured once; the files of two processes become one."""
        calls = []

        def measure(family, name, enough):
            calls.append(name)
            return {(case, name): (1.0, 2, 1.0, len(case)) for case in family.cases}

        monkeypatch.setattr(scaling, "measure", measure)
        first = scaling.measured(family, tmp_path / "kept.json", 0.1)
        assert scaling.measured(family, tmp_path / "kept.json", 0.1) == first
        assert calls == ["DPMeans", "KMeans"]

    def test_without_arguments(self, scaling):
        family = scaling.larger(next(f for f in scaling.FAMILIES if f.__name__ == "DataSets"))
        assert family.names == ("HDPMeans", "HDPMeans()", "KMeans")
        assert family.base[0] == 100_000 and family.rows[-1] == 10_000_000
        one = type("Few", (family,), {"base": (200, 4, 5), "rows": (200,)})()
        for name, lam in (("HDPMeans", None), ("HDPMeans()", "auto")):
            one.setup("200 x 4, 5 clusters", name)
            found = one.estimator.model.lam_global
            assert found == lam if lam else found > 0

    def test_a_measured_case(self, scaling, family):
        """The classes of the benchmark, on the smallest case: seconds, K and NMI of both."""
        small = type(
            "One",
            (family,),
            {"base": (100, 4, 5), "rows": (100,), "columns": (4,), "clusters": (5,)},
        )
        found = {name: scaling.measure(small, name, 0.0) for name in small.names}
        assert [list(series) for series in found.values()] == [
            [("100 x 4, 5 clusters", name)] for name in ("DPMeans", "KMeans")
        ]
        ((seconds, k, quality, memory),), ((_, rival, *_),) = (f.values() for f in found.values())
        assert seconds >= 0 and rival == 5 and 0.8 < quality <= 1 + 1e-9 and 4 <= k <= 8
        assert sys.platform != "linux" or 0 < memory < 1e9


def script(folder, name, body):
    (folder / f"{name}.py").write_text(body, encoding="utf-8")


class TestRun:
    """What becomes of scripts made for the purpose."""

    @pytest.fixture
    def folder(self, run, tmp_path, monkeypatch):
        monkeypatch.setattr(run, "HERE", tmp_path)
        monkeypatch.delenv("SMALLVAR_DATA", raising=False)
        say = "import sys\nprint(*sys.argv[1:])\n"
        script(tmp_path, "good", say)
        script(tmp_path, "twice", say)
        script(tmp_path, "bad", "import sys\nsys.exit('it broke')\n")
        script(tmp_path, "slow", "import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
        table = {
            "good": run.Script(figure=True),
            "twice": run.Script(figure=True, alone=True),
            "bad": run.Script(),
            "slow": run.Script(limit=1 / 60),
            "files": run.Script(data=True),  # there is no such file: it must not be run
        }
        monkeypatch.setattr(run, "SCRIPTS", table)
        return tmp_path

    def main(self, run, monkeypatch, *arguments):
        monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
        return run.main()

    def test_all(self, run, folder, monkeypatch, capfd):
        assert self.main(run, monkeypatch) == 1
        printed = capfd.readouterr()
        outcomes = re.findall(r"(?m)^(\w+) +[\d.]+ s  ([a-z ]+)$", printed.out)
        assert dict(outcomes) == {
            "good": "ok", "twice": "ok", "bad": "failed", "slow": "too long", "files": "skipped",
        }  # fmt: skip
        assert "it broke" in printed.err
        results = folder / "results"
        assert (results / "good.txt").read_text() == f"--figure {results / 'good.png'}\n"
        assert (results / "twice.txt").read_text() == f"\n--figure {results / 'twice.png'}\n"
        assert not (results / "files.txt").exists()

    def test_quick_keeps_nothing(self, run, folder, monkeypatch, capfd):
        assert self.main(run, monkeypatch, "--quick", "good.py", "files") == 0
        assert not (folder / "results").exists()
        assert capfd.readouterr().out.endswith(": 1 ok, 1 skipped\n")

    def test_quick_with_results(self, run, folder, monkeypatch):
        kept = folder / "kept"
        assert self.main(run, monkeypatch, "--quick", "--results", str(kept), "good", "twice") == 0
        assert (kept / "twice.txt").read_text() == "--quick\n"
        assert (kept / "good.txt").read_text() == f"--quick --figure {kept / 'good.png'}\n"

    def test_unknown_names(self, run, folder, monkeypatch, capsys):
        with pytest.raises(SystemExit, match="2"):
            self.main(run, monkeypatch, "god")
        assert (
            "no such script: god; there are good, twice, bad, slow, files"
            in capsys.readouterr().err
        )
