"""The command line on tables as they are: words, flags, counts and gaps."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_tables import mixed
from sklearn.metrics import adjusted_rand_score

import smallvar
from smallvar._cli.mixed_table import PARSED_ROWS


@pytest.fixture(autouse=True)
def folder(tables):
    """All tests run in a folder that holds the files of cli_tables."""
    return tables


def write(table, path="t.csv", **options):
    table.to_csv(path, index=False, **options)
    return path


def test_labels(ran):
    ran("words.csv --out l.npy")
    expected = smallvar.MixedDPMeans(random_state=0).fit(pd.read_csv("words.csv"))
    assert np.load("l.npy").tolist() == expected.labels_.tolist()
    assert adjusted_rand_score(mixed()[1], np.load("l.npy")) > 0.95


@pytest.mark.parametrize(
    ("call", "lines", "others"),
    [
        ("numbers.csv", ["share of the cost saved"], ["columns:\n"]),
        (
            "gaps.csv --exclude word",
            ["missing value)", "1 cluster, but this number"],
            [],
        ),
        ("words.csv --n-clusters 1", ["1 cluster, as asked for."], ["apart"]),
        ("numbers.csv --kinds count=normal", ["given by --kinds", "normal       as asked for"], []),
        ("numbers.csv --kinds count=none", ["left out by columns"], []),
        ("years.csv", ["years.csv, 3 columns: who, 1990, 1991\nn "], []),
        ("years.csv --no-header", ["years.csv, 3 columns: 1, 2, 3\nn "], []),
    ],
)
def test_lines_of_reports(run, call, lines, others):
    write(mixed(gaps=0.0)[0][["size", "count"]], "numbers.csv")
    names = ["ann", "bob", "eve", "zoe", "tim", "kim"]
    rows = [f"{name},{i % 2 * 9.5 + i},{i % 2}" for i, name in enumerate(names)]
    Path("years.csv").write_text("\n".join(["who,1990,1991", *rows]), encoding="utf-8")
    code, out, _ = run(call)
    assert code == 0
    assert all(line in out for line in lines)
    assert not any(line in out for line in others)


@pytest.mark.parametrize("options", [{"sep": ";", "decimal": ","}, {"sep": "\t"}, {"na_rep": "?"}])
def test_other_text(ran, options):
    write(mixed()[0], **options)
    ran("t.csv --out a.npy", *(["--decimal", ","] if "decimal" in options else []))
    ran("words.csv --out b.npy")
    assert np.array_equal(np.load("a.npy"), np.load("b.npy"))


def test_parquet_and_npy(run):
    pytest.importorskip("pyarrow")
    table, kind = mixed()
    table["color"] = table["color"].astype("category")
    table.to_parquet("t.parquet")
    code, out, _ = run("t.parquet --exclude id --out a.npy")
    assert code == 0
    assert "category: 3 levels" in out
    assert adjusted_rand_score(kind, np.load("a.npy")) > 0.95
    np.save("t.npy", table[["size", "count"]].to_numpy(float))
    assert run("t.npy --out b.npy")[0] == 0
    assert adjusted_rand_score(kind, np.load("b.npy")) > 0.9


@pytest.mark.parametrize("options", ["", "--kinds a=normal", "--batch-size 2"])
def test_bad_parquet(refused, options):
    """Columns of one name, and a damaged file."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    twice = pa.Table.from_arrays([pa.array([1.0, 2.0, 3.0])] * 2, names=["a", "a"])
    parquet.write_table(twice, "t.parquet")
    message = "smallvar: t.parquet has 2 columns 'a'; rename all but one\n"
    assert refused("t.parquet", *options.split()) == message
    Path("t.parquet").write_bytes(b"PAR1 and nothing else")
    assert refused("t.parquet", *options.split()).startswith("smallvar: t.parquet: ")


@pytest.mark.parametrize("gap", [False, True])
def test_columns_of_one_name(run, gap):
    """They are told apart as in pandas; a word or a gap brings in no other rule."""
    table, kind = mixed(gaps=0.0)
    table.columns = ["id", "x", "color", "x"]
    if gap:
        table = table[["x"]].set_axis(["x", "x"], axis=1)
        table.iloc[3, 0] = None
    code, out, err = run(write(table), "--out", "l.npy")
    assert code == 0
    assert err == (
        "smallvar: warning: t.csv has 2 columns 'x': 'x' is the first, the other is called 'x.1'\n"
    )
    assert re.search(r"^  x +normal ", out, re.M)
    assert re.search(r"^  x\.1 ", out, re.M)
    expected = smallvar.MixedDPMeans(random_state=0).fit(pd.read_csv("t.csv"))
    assert np.load("l.npy").tolist() == expected.labels_.tolist()
    assert adjusted_rand_score(kind, expected.labels_) > 0.95
    code, out, _ = run("t.csv --exclude x --kinds x.1=normal")
    assert code == 0
    assert re.search(r"^  x\.1 +normal +as asked for$", out, re.M)


def test_words_after_many_numbers(run, refused):
    """Codes of which the first thousands are numbers are read again as words, if asked for."""
    codes = ["1", "2"] * PARSED_ROWS + ["A", "1", ""]
    lines = ["code,size", *(f"{code},{i % 7}.5" for i, code in enumerate(codes))]
    Path("t.csv").write_text("\n".join(lines), encoding="utf-8")
    message = f"t.csv, line {2 * PARSED_ROWS + 2}, column code: 'A' is not a number; --kinds code="
    assert message in refused("t.csv")
    code, out, _ = run("t.csv --kinds code=categorical --n-clusters 2")
    assert code == 0
    assert "code  categorical" in out


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        ("", "a,b\n1,x\n2,\n3\n", "line 4: 1 cell, but 2"),
        ("", ",b\n1,x\n2,y\n", "column 1 has no name in the header"),
        ("", "a,b\nx,1\n,inf\n", "line 3, column b: infinite value; --na inf takes"),
        ("", "a,b\nx,1\nx,1\n", "X must have a column that tells rows apart, got none (a: one va"),
        ("", "a;b;c\nx;1,5;1.5\ny;2,5;2\nz;;\n", "column b ('1,5') not numeric"),
        ("--kinds a=normal", "a,b\n", "t.csv has no rows"),
        # numbers of Python are words
        (
            "",
            "a,b\n1,2\n3,1_1\n,5\n4,6\n",
            "column b: '1_1' is not a number; --na 1_1 takes it as miss",
        ),
        ("", "a,b\n1,2\n3,\uff11\n,5\n4,6\n", "line 3, column b: '\uff11' is not a number"),
        # the line that is told is that of the file, also with a header that is asked for
        ("--header", "1,2\n2,x\n3,4\n5,6\n", "line 2, column 2: 'x' is not a number"),
        ("--no-header", "1,2\n2,x\n3,4\n5,6\n", "line 2, column 2: 'x' is not a number"),
        # options of tables of numbers
        ("--scale", "a,b\nx,1\ny,2\n", "not numeric"),
        ("--drop-missing", "a,b\nx,1\ny,2\n", "not numeric"),
        ("--guess 3", "a,b\nx,1\ny,2\n", "not numeric"),
    ],
)
def test_refused(refused, options, text, message):
    Path("t.csv").write_text(text, encoding="utf-8")
    assert message in refused("t.csv", *options.split())


def test_standard_input():
    command = [sys.executable, "-m", "smallvar", "-", "--out", "-"]
    with open("words.csv", "rb") as file:
        found = subprocess.run(command, stdin=file, capture_output=True, check=True, timeout=120)
    assert len(found.stdout.splitlines()) == 121
    assert b"columns:" in found.stderr


def gapped(n_gaps, n=300):
    """Two clusters in four columns of grades that go together, and rows that lack one of them."""
    rng = np.random.default_rng(0)
    grade = np.where(np.arange(n) < 200, 2.0, 8.0)[:, None] + rng.normal(size=(n, 1))
    table = pd.DataFrame(np.clip((grade + rng.normal(size=(n, 5))).round(), 1, 10))
    table.columns = list("abcde")
    table.loc[:: n // n_gaps, "c"] = np.nan
    return table


def test_a_few_gaps_that_change_the_number(run):
    """The rows without gaps are tried, and another number of theirs is told."""
    table = gapped(6)
    write(table, "t.csv")
    code, out, _ = run("t.csv")
    mixed_number = smallvar.MixedDPMeans(random_state=0).fit(table).n_clusters_
    plain = smallvar.DPMeans(random_state=0).fit(table.dropna())
    assert code == 0 and plain.n_clusters_ == 2 != mixed_number and plain.path_.confidence > 0.5
    line = (
        f"next        --drop-missing: without the 6 rows (2.0%) with gaps there are 2 clusters "
        f"(confidence {plain.path_.confidence:.2f})\n"
    )
    assert line in out
    assert "this number is clear" not in out
    assert run("t.csv --drop-missing")[1].startswith("2 clusters")
    write(gapped(100), "t.csv")  # a third of the rows: the others do not stand for them
    assert "--drop-missing" not in run("t.csv")[1]


def test_zeros_of_an_amount_are_no_gaps(ran):
    """An amount that many rows do not have is not missing there."""
    rng = np.random.default_rng(0)
    amount = np.where(rng.random(300) < 0.4, 0.0, np.round(rng.gamma(3.0, 9.0, 300), 2))
    word = rng.choice(["x", "y"], 300)
    write(pd.DataFrame({"amount": amount, "word": word, "a": rng.normal(size=300)}), "t.csv")
    report = ran("t.csv")
    assert "gaps" not in report and report["d"] == "3 of 3"


def test_columns_that_are_named_take_part(run):
    lines = ["id,a,word", *(f"{i},{i % 3 * 9 + i / 100},{'xyz'[i % 3]}" for i in range(60))]
    Path("t.csv").write_text("\n".join(lines), encoding="utf-8")
    assert re.search(r"(?m)^  id +left out", run("t.csv")[1])
    assert re.search(r"(?m)^  id +normal", run("t.csv --columns id,a,word")[1])
