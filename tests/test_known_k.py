"""The comparison of numbers of clusters, asv_bench/known_k.py."""

import gzip
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import script as module_of

import smallvar


@pytest.fixture
def script():
    """The script as a module."""
    return module_of("asv_bench/known_k.py")


@pytest.fixture
def battery(tmp_path):
    """A folder of three sets: blobs with noise, a ring around a blob, and a larger set."""
    folder, rng = tmp_path / "battery", np.random.default_rng(0)

    def write(name, X, truth):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.savetxt(folder / f"{name}.data.gz", X)
        np.savetxt(folder / f"{name}.labels0.gz", truth, fmt="%d")
        np.savetxt(folder / f"{name}.labels1.gz", np.ones(len(X)), fmt="%d")

    truth = np.repeat([1, 2, 3], 40)
    X = 20.0 * truth[:, None] + rng.normal(size=(120, 1))
    truth[::40] = 0  # noise, but within clusters: it can only be seen by what is left out
    write("blobs/three", X, truth)
    angle = rng.uniform(0, 2 * np.pi, size=150)
    ring = 20 * np.column_stack([np.cos(angle), np.sin(angle)])
    X = np.concatenate([ring, np.zeros((150, 2))]) + rng.normal(size=(300, 2))
    write("shapes/ring", X, np.repeat([1, 2], 150))
    write("shapes/large", rng.normal(size=(400, 2)), np.ones(400))
    return folder


@pytest.fixture
def run(script, monkeypatch, capsys):
    """Run the script; returns what it prints."""

    def run(*argv):
        monkeypatch.setattr(sys, "argv", ["known_k.py", *map(str, argv)])
        script.main()
        return capsys.readouterr().out

    return run


def test_battery(run, battery, tmp_path):
    file = tmp_path / "results.jsonl"
    out = run("--battery", battery, "--most-rows", 399, "--save", file, "--rivals")
    results = [json.loads(line) for line in file.read_text().splitlines()]
    methods = ["smallvar DPMeans()", "HDBSCAN()", "KMeans, best silhouette"]
    assert [(r["set"], r["method"]) for r in results] == [
        (name, method) for name in ("blobs/three", "shapes/ring") for method in methods
    ]
    assert [r["kind"] for r in results] == ["compact"] * 3 + ["other"] * 3
    assert [(r["n"], r["d"], r["k"]) for r in results[::3]] == [(120, 1, 3), (300, 2, 2)]
    assert all((r["found"], r["ari"]) == (3, 1.0) for r in results[:3:2])
    assert (results[4]["found"], results[4]["ari"] > 0.9) == (2, True)  # HDBSCAN sees the ring
    assert results[5]["found"] > 4  # k-means does not
    assert "HDBSCAN(), shapes/ring: 2, found 2, ARI " in out
    lines = {line.partition(", 1 other")[0]: line.split()[-6:] for line in out.splitlines()}
    exact, close, twice, one, _, _ = lines["KMeans, best silhouette"]
    assert (exact, close, twice, one) == ("0", "0", "1", "0")
    assert lines["HDBSCAN()"][:4] == ["1", "1", "0", "0"]
    assert "\n1 sets of more than 399 rows: shapes/large\n" in out


def test_saved_results_are_not_repeated(run, script, battery, tmp_path, monkeypatch):
    file = tmp_path / "results.jsonl"
    argv = ["--battery", battery, "--save", file, "--skip", "ring", "shapes/large"]
    before = run(*argv)
    assert "\n2 sets left out: shapes/large, shapes/ring\n" in before
    saved = file.read_bytes()
    monkeypatch.setitem(script.FITS, "smallvar DPMeans()", None)  # would fail if called
    assert run(*argv) == before
    assert file.read_bytes() == saved
    with pytest.raises(TypeError):
        run(*argv, "--seed", 1)  # another result
    with pytest.raises(TypeError):
        run("--battery", battery, "--save", file, "--skip", "large")  # another set


def test_known_sets_and_missing_files_are_skipped(run, battery, tmp_path):
    np.savez(tmp_path / "known.npz", **{"three.X": np.ones((2, 2)), "three.y": np.ones(2)})
    (battery / "shapes" / "large.data.gz").write_text(
        "version https://git-lfs.github.com/spec/v1\n"
    )
    (battery / "shapes" / "ring.data.gz").unlink()
    out = run("--battery", battery, "--known", tmp_path / "known.npz")
    assert "1 sets left out: blobs/three\n" in out
    assert "2 sets without a gzip file of rows or labels: shapes/large, shapes/ring\n" in out
    with pytest.raises(SystemExit):
        run("--battery", tmp_path / "nowhere")


def test_confidence_is_summarized(run, script, battery, monkeypatch):
    def fit(self, X):
        found = 3 if X.shape[1] == 1 else 5
        self.labels_ = np.arange(len(X)) * found // len(X)
        self.path_ = SimpleNamespace(confidence=0.9 if found == 3 else 0.3)
        return self

    monkeypatch.setattr(smallvar.DPMeans, "fit", fit)
    out = run("--battery", battery, "--skip", "large")
    assert "shapes/ring: 2, found 5, " in out
    assert ", confidence 0.30\n" in out
    assert "confidence, compact: 1 sets, 1 exact, no AUC: all alike\n" in out
    *_, whole = out.split("\n\n")[:-1]
    assert whole.splitlines() == [
        "confidence, all: 2 sets, 1 exact, AUC 1.000",
        "    from 0.2 to 0.5:    1 sets, 0.00 of them exact, mean confidence 0.30",
        "    from 0.8 to 1.0:    1 sets, 1.00 of them exact, mean confidence 0.90",
    ]
    monkeypatch.setattr(
        script, "generated", lambda seed: {"a": (np.ones((9, 1)), np.arange(9) // 3)}
    )
    monkeypatch.setattr(script, "real", dict)
    assert "confidence, generated: 1 sets, 1 exact" in run()


def test_calibration(script):
    rows = [(0.0, 1), (0.1, 0), (0.2, 0), (0.79, 1), (0.8, 1), (1.0, 1)]
    results = [{"confidence": c, "found": 3 if exact else 4, "k": 3} for c, exact in rows]
    first, *lines = script.calibration_of(results)
    assert first == "6 sets, 4 exact, AUC 0.750"  # 6 of the 8 pairs are in order
    assert [line.split(",")[0] for line in lines] == [
        "    from 0.0 to 0.2:    2 sets",
        "    from 0.2 to 0.5:    1 sets",
        "    from 0.5 to 0.8:    1 sets",
        "    from 0.8 to 1.0:    2 sets",
    ]
    assert lines[0].endswith("0.50 of them exact, mean confidence 0.05")


def test_files_are_gzip_files(script, tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"1\n"))
    (tmp_path / "b.gz").write_bytes(b"1\n")
    found = [script.gzipped(tmp_path / name) for name in ("a.gz", "b.gz", "c.gz")]
    assert found == [True, False, False]
