"""The command line on tables as they are: words, flags, counts and gaps."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

import smallvar
from smallvar._cli.main import main
from smallvar._cli.mixed_table import ROWS


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command line in this process: exit code, standard output, standard error."""
    monkeypatch.setattr("sys.stdin", None)

    def run(*argv):
        code = main([str(argument) for argument in argv])
        return code, *capsys.readouterr()

    return run


def frame(n=120, gaps=0.1):
    """Three clusters, told by numbers, words and counts, and the cluster of each row."""
    g = np.random.default_rng(0)
    kind = g.integers(3, size=n)
    table = pd.DataFrame(
        {
            "id": [f"row {i}" for i in range(n)],
            "size": (np.array([1.0, 5.0, 9.0])[kind] + 0.3 * g.normal(size=n)).round(3),
            "color": np.array(["red", "green", "blue"], dtype=object)[kind],
            "count": g.poisson(np.array([5, 60, 200])[kind]).astype(float),
        }
    )
    for name in ("size", "color", "count"):
        table.loc[g.random(n) < gaps, name] = None
    return table, kind


def write(path, table, **options):
    table.to_csv(path, index=False, **options)
    return path


def test_csv(run, tmp_path):
    table, kind = frame()
    path = write(tmp_path / "t.csv", table)
    code, out, err = run(path, "--out", tmp_path / "labels.csv")
    assert (code, err) == (0, "")
    labels = pd.read_csv(tmp_path / "labels.csv")["label"]
    expected = smallvar.MixedDPMeans(random_state=0).fit(pd.read_csv(path))
    assert labels.tolist() == expected.labels_.tolist()
    assert adjusted_rand_score(kind, labels) > 0.95
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "size normal numbers" in lines[:8]
    assert "color categorical 3 levels" in lines[:8]
    assert "id left out an identifier: another value in every row" in lines[:8]
    assert any(line.startswith("gaps ") and "of the cells are missing" in line for line in lines)
    assert any("columns id ('row 0'), color (" in line for line in lines)
    assert any(line.startswith("K 3 (from the data") for line in lines)
    assert any(line.startswith("objective") and "(divergence + lam K)" in line for line in lines)
    assert sum("color red 100%" in line for line in lines) == 1


def test_nothing_sets_a_single_cluster_apart(run, tmp_path):
    path = write(tmp_path / "t.csv", frame()[0])
    assert "what sets the clusters apart" in run(path)[1]
    assert "apart" not in run(path, "--n-clusters", 1)[1]


def test_numbers_without_gaps_are_as_before(run, tmp_path):
    table, _ = frame(gaps=0.0)
    _, out, _ = run(write(tmp_path / "t.csv", table[["size", "count"]]))
    assert "(SSE + lam K)" in out
    assert not out.startswith("columns:")


def test_a_gap_is_enough(run, tmp_path):
    table, _ = frame()
    _, out, _ = run(write(tmp_path / "t.csv", table[["size", "count"]]))
    assert "missing value)" in out
    assert "(divergence + lam K)" in out


@pytest.mark.parametrize("options", [{"sep": ";", "decimal": ","}, {"sep": "\t"}, {"na_rep": "?"}])
def test_other_text(run, tmp_path, options):
    table, _ = frame()
    path = write(tmp_path / "t.csv", table, **options)
    decimal = ["--decimal", ","] if "decimal" in options else []
    assert run(path, "--out", tmp_path / "a.npy", *decimal)[0] == 0
    assert run(write(tmp_path / "u.csv", table), "--out", tmp_path / "b.npy")[0] == 0
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))


def test_parquet_and_npy(run, tmp_path):
    pytest.importorskip("pyarrow")
    table, kind = frame()
    table["color"] = table["color"].astype("category")
    table.to_parquet(tmp_path / "t.parquet")
    code, out, _ = run(tmp_path / "t.parquet", "--exclude", "id", "--out", tmp_path / "a.npy")
    assert code == 0
    assert "category: 3 levels" in out
    assert adjusted_rand_score(kind, np.load(tmp_path / "a.npy")) > 0.95
    X = table[["size", "count"]].to_numpy(float)
    np.save(tmp_path / "t.npy", X)
    code, out, _ = run(tmp_path / "t.npy", "--out", tmp_path / "b.npy")
    assert code == 0
    assert adjusted_rand_score(kind, np.load(tmp_path / "b.npy")) > 0.9


@pytest.mark.parametrize("options", [[], ["--kinds", "a=normal"], ["--batch-size", 2]])
def test_parquet_with_columns_of_one_name(run, tmp_path, options):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    twice = pa.Table.from_arrays([pa.array([1.0, 2.0, 3.0])] * 2, names=["a", "a"])
    parquet.write_table(twice, tmp_path / "t.parquet")
    code, _, err = run(tmp_path / "t.parquet", *options)
    assert code == 2
    assert err == f"smallvar: {tmp_path}/t.parquet has 2 columns 'a'; rename all but one\n"


@pytest.mark.parametrize("options", [[], ["--kinds", "a=normal"]])
def test_damaged_parquet(run, tmp_path, options):
    pytest.importorskip("pyarrow")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and nothing else")
    code, _, err = run(tmp_path / "t.parquet", *options)
    assert code == 2
    assert err.startswith(f"smallvar: {tmp_path}/t.parquet: ")
    assert err.count("\n") == 1


def test_kinds(run, tmp_path):
    table, _ = frame(gaps=0.0)
    path = write(tmp_path / "t.csv", table[["size", "count"]])
    code, out, _ = run(path, "--kinds", "count=normal")
    assert code == 0
    assert "given by --kinds" in out
    assert "normal       as asked for" in out
    code, out, _ = run(path, "--kinds", "count=none")
    assert "left out by columns" in out
    for kinds, message in (
        ("count", "must be NAME=KIND,..., got 'count'"),
        ("count=normal,count=poisson", "argument --kinds: names 'count' twice"),
        ("count=gaussian", "must be None or one of 'normal'"),
        ("other=normal", "got 'other'; X has size, count"),
        ("size=poisson", "whole numbers >= 0 for the kind 'poisson'"),
    ):
        code, out, err = run(path, "--kinds", kinds)
        assert (code, out) == (2, "")
        assert message in err
    assert "no meaning with --kinds" in run(path, "--kinds", "count=normal", "--scale")[2]
    assert "no meaning without DATA" in run("--kinds", "count=normal")[2]


def test_columns_of_one_name(run, tmp_path):
    """They are told apart as in pandas; a word or a gap brings in no other rule."""
    table, kind = frame(gaps=0.0)
    table.columns = ["id", "x", "color", "x"]
    for gap in (False, True):
        if gap:
            table = table[["x"]].set_axis(["x", "x"], axis=1)
            table.iloc[3, 0] = None
        path = write(tmp_path / "t.csv", table)
        code, out, err = run(path, "--out", tmp_path / "labels.npy")
        assert code == 0
        assert err == (
            f"smallvar: warning: {path} has 2 columns 'x': 'x' is the first, the other is called "
            "'x.1'\n"
        )
        lines = [" ".join(line.split()) for line in out.splitlines()]
        assert any(line.startswith("x normal") for line in lines)
        assert any(line.startswith("x.1 ") for line in lines)
        expected = smallvar.MixedDPMeans(random_state=0).fit(pd.read_csv(path))
        assert np.load(tmp_path / "labels.npy").tolist() == expected.labels_.tolist()
    assert adjusted_rand_score(kind, expected.labels_) > 0.95
    code, out, _ = run(path, "--exclude", "x", "--kinds", "x.1=normal")
    assert code == 0
    assert "t.csv, 1 column: x.1\n" in out
    _, out, _ = run(path, "--kinds", "x=exponential,x.1=poisson")
    assert [" ".join(line.split()) for line in out.splitlines()[1:3]] == [
        "x exponential as asked for",
        "x.1 poisson as asked for",
    ]


def test_years_in_the_header(run, tmp_path):
    names = ["ann", "bob", "eve", "zoe", "tim", "kim"]
    rows = [f"{name},{i % 2 * 9.5 + i},{i % 2}" for i, name in enumerate(names)]
    (tmp_path / "t.csv").write_text("\n".join(["who,1990,1991", *rows]), encoding="utf-8")
    code, out, err = run(tmp_path / "t.csv")
    assert (code, err) == (0, "")
    assert "t.csv, 3 columns: who, 1990, 1991\nn          6\n" in out
    code, out, _ = run(tmp_path / "t.csv", "--no-header")
    assert "t.csv, 3 columns: 1, 2, 3\nn          7\n" in out
    # the line that is told is that of the file, also with a header that is asked for
    (tmp_path / "t.csv").write_text("\n".join(["1,2", "2,x", "3,4", "5,6"]), encoding="utf-8")
    for option, line in (("--header", 2), ("--no-header", 2)):
        code, _, err = run(tmp_path / "t.csv", option)
        assert code == 2
        assert f"line {line}, column 2: 'x' is not a number" in err


def test_numbers_of_python_are_words(run, tmp_path):
    for cell in ("1_1", "\uff11\uff11"):
        (tmp_path / "t.csv").write_text(f"a,b\n1,2\n3,{cell}\n,5\n4,6\n", encoding="utf-8")
        code, _, err = run(tmp_path / "t.csv")
        assert code == 2
        assert f"t.csv, line 3, column b: {cell!r} is not a number; --kinds b=categorical" in err


def test_options(run, tmp_path):
    path = write(tmp_path / "t.csv", frame()[0])
    _, out, _ = run(path, "--n-clusters", 2)
    assert "2 (given)" in out
    _, out, _ = run(path, "--lam", 30, "--algorithm", "delayed")
    assert "(given; in nats, not squared units)" in out
    code, out, _ = run(path, "--path", 5)
    assert code == 0
    assert any(line.split()[:3] == ["K", "divergence", "criterion"] for line in out.splitlines())
    assert sum(line.endswith("  *") for line in out.splitlines()) == 1
    for option in (["--scale"], ["--drop-missing"], ["--guess", 3]):
        assert "not numeric" in run(path, *option)[2]  # as for a table of numbers


def test_plot(run, tmp_path):
    pytest.importorskip("matplotlib")
    path = write(tmp_path / "t.csv", frame()[0])
    assert run(path, "--plot", tmp_path / "t.png")[0] == 0
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


def test_words_after_many_numbers(run, tmp_path):
    """Codes of which the first thousands are numbers are read again as words, if asked for."""
    codes = ["1", "2"] * ROWS + ["A", "1", ""]
    text = "code,size\n" + "\n".join(f"{code},{i % 7}.5" for i, code in enumerate(codes))
    path = tmp_path / "t.csv"
    path.write_text(text)
    code, out, err = run(path)
    assert (code, out) == (2, "")
    assert f"t.csv, line {2 * ROWS + 2}, column code: 'A' is not a number; --kinds code=" in err
    code, out, _ = run(path, "--kinds", "code=categorical", "--n-clusters", 2)
    assert code == 0
    assert "code  categorical" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,x\n2,\n3\n", "line 4: 1 cell, but 2"),
        (",b\n1,x\n2,y\n", "column 1 has no name in the header"),
        ("a,b\nx,1\n,inf\n", "infinity in column 'b' at position 1"),
        ("a,b\nx,1\nx,1\n", "X must have a column that tells rows apart, got none (a: one value"),
        ("a;b\nx;1,5\ny;2,5\nz;\n", "column b ('1,5') not numeric"),
    ],
)
def test_refused(run, tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    code, out, err = run(path)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_standard_input(tmp_path):
    path = write(tmp_path / "t.csv", frame()[0])
    command = [sys.executable, "-m", "smallvar", "-", "--out", "-"]
    with open(path, "rb") as file:
        found = subprocess.run(command, stdin=file, capture_output=True, check=True, timeout=120)
    assert len(found.stdout.splitlines()) == 121
    assert b"columns:" in found.stderr
