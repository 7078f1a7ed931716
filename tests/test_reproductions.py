"""The scripts of docs/reproductions: all are known to run.py, and say what they do."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    path = FOLDER / "run.py"
    if not path.is_file():
        pytest.skip("the source tree is not at hand")
    spec = importlib.util.spec_from_file_location("reproductions_run", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


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
        script(tmp_path, "bad", "import sys\nsys.exit('it broke')\n")
        script(tmp_path, "slow", "import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
        table = {
            "good": run.Script(figure=True),
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
            "good": "ok", "bad": "failed", "slow": "too long", "files": "skipped",
        }  # fmt: skip
        assert "it broke" in printed.err
        results = folder / "results"
        assert (results / "good.txt").read_text() == f"--figure {results / 'good.png'}\n"
        assert not (results / "files.txt").exists()

    def test_quick_keeps_nothing(self, run, folder, monkeypatch, capfd):
        assert self.main(run, monkeypatch, "--quick", "good.py", "files") == 0
        assert not (folder / "results").exists()
        assert capfd.readouterr().out.endswith(": 1 ok, 1 skipped\n")

    def test_quick_with_results(self, run, folder, monkeypatch):
        kept = folder / "kept"
        assert self.main(run, monkeypatch, "--quick", "--results", str(kept), "good") == 0
        assert (kept / "good.txt").read_text() == f"--quick --figure {kept / 'good.png'}\n"

    def test_unknown_names(self, run, folder, monkeypatch, capsys):
        with pytest.raises(SystemExit, match="2"):
            self.main(run, monkeypatch, "god")
        assert "no such script: god; there are good, bad, slow, files" in capsys.readouterr().err
