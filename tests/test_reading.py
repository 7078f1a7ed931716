"""How the command line reads files: which cells are what, and what is refused with which advice."""

import contextlib
import datetime
import gzip
import io
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cli_tables import as_csv, as_npy, typed, write

from smallvar._cli.arguments import parse
from smallvar._cli.cells import find_header, signs_of, taken_apart
from smallvar._cli.main import main
from smallvar._cli.rows import Rows
from smallvar._cli.table import read_table
from smallvar._cli.words import UserError

NAN = np.nan


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(content, options="", name="t.csv"):
    """The Table of a file."""
    return read_table(name, parse([write(name, content), *shlex.split(options)]))


def columns(table):
    """The columns of a table, by title, as lists."""
    by_title = table.X if table.is_mixed else dict(zip(table.titles, table.X.T, strict=True))
    return {title: list(column) for title, column in by_title.items()}


def refused(content, options="", name="t.csv"):
    """The error of a file that is refused."""
    with pytest.raises(UserError) as error:
        read(content, options, name)
    assert "\n" not in str(error.value)
    return str(error.value)


def outcome_of(content, name):
    """Read a damaged file, which may end in a UserError, but in no other."""
    with contextlib.suppress(UserError):
        read(content, name=name)


# Text


PAIRS = {"a": [1.0, 3.0], "b": [2.5, -40.0]}


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("header.csv", "a,b\n1,2.5\n3,-4e1\n", ""),
        ("no_newline.csv", "a,b\n1,2.5\n3,-4e1", ""),
        ("semicolon.csv", "a;b\n1;2.5\n3;-4e1\n", ""),
        ("tab.csv", "a\tb\n1\t2.5\n3\t-4e1\n", ""),
        ("SUFFIX.TSV", "a\tb\n1\t2.5\n3\t-4e1\n", ""),
        ("commas.tsv", "a,b\n1,2.5\n3,-4e1\n", ""),
        ("bar.csv", "a|b\n1|2.5\n3|-4e1\n", ""),
        ("bom.csv", "\ufeffa,b\n1,2.5\n3,-4e1\n", ""),
        ("crlf.csv", "a,b\r\n1,2.5\r\n3,-4e1\r\n", ""),
        ("cr.csv", "a,b\r1,2.5\r3,-4e1\r", ""),
        ("blank_lines.csv", "\n\na,b\n\n1,2.5\n   \n3,-4e1\n\n\n", ""),
        ("quoted.csv", '"a","b"\n"1","2.5"\n"3","-4e1"\n', ""),
        ("spaces.csv", " a , b \n 1 , 2.5 \n 3 , -4e1 \n", ""),
        ("aligned.txt", "   a     b\n\n   1   2.5\n   3  -4e1  \n", ""),
        ("spaces_and_tabs.dat", "a \t b\n1 2.5\n3\t  -4e1\n", ""),
        ("quoted.txt", '"a" "b"\n"1" 2.5\n3 "-4e1"\n', ""),
        ("semicolon.csv", "a;b\n1;2,5\n3;-4e1\n", "--decimal ,"),
        ("semicolon.csv", "a;b\n1;2,5\n3;-4e1\n", ""),
        ("tab.tsv", "a\tb\n1\t2,5\n3,0\t-4e1\n", "--decimal ,"),
        ("spaces.txt", "a b\n1,0  2,5\n3,0  -40,0\n", "--decimal ,"),
        ("utf16.csv", "a,b\n1,2.5\n3,-4e1\n".encode("utf-16"), "--encoding utf-16"),
        ("bom.csv", "\ufeffa,b\n1,2.5\n3,-4e1\n", "--encoding UTF_8"),
        ("t.csv.gz", "a,b\n1,2.5\n3,-4e1\n", ""),
        ("t.TXT.GZ", "a b\n1 2.5\n3 -4e1\n", ""),
        ("titles.csv", "Report 2024\nof,,\n\na,b\n1,2.5\n3,-4e1\n".replace(",,", ","), ""),
        ("sep.csv", "sep=;\na;b\n1;2.5\n3;-4e1\n", ""),
        ("numpy.csv", "# a,b\n1,2.5\n3,-4e1\n", ""),
        ("comments.csv", "# a\n# b, c\na,b\n1,2.5\n3,-4e1\n", ""),
        ("below.csv", "a,b\n1,2.5\n3,-4e1\n,\nTotal,7\nSource: us\n", ""),
        ("units.csv", "a,b\nkg,m\n1,2.5\n3,-4e1\n", ""),
        ("skipped.csv", 'a,b\n1,2.5\n7,"8\n3,-4e1\n', "--skip-rows 3"),
        ("money.csv", "a,b\n$1,2.5%\n$3,-40 %\n", ""),
        ("brackets.csv", "a,b\n1,2.5\n3,(40)\n", ""),
        ("minus.csv", "a,b\n1,2.5\n3,\u221240\n", ""),
    ],
)
def test_text_tables(name, content, options):
    table = read(content, options, name)
    assert columns(table) == PAIRS
    assert (table.name, table.X.dtype) == (name, np.float64)


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("a,b\n1,x\n2,y\n3,\n", "", {"a": [1, 2, 3], "b": ["x", "y", None]}),
        ("a,b\n007,1\n10,2\n", "", {"a": ["007", "10"], "b": [1, 2]}),
        ("a,b\n0.7,01\n0,2\n", "", {"a": [0.7, 0], "b": ["01", "2"]}),
        ("a\n3\nNA\nnone\n", "", {"a": [3, NAN, NAN]}),
        ("a,b\nnone,1\n-,2\nx,3\n", "", {"a": ["none", "-", "x"], "b": [1, 2, 3]}),
        ("x\n1\n\n3\n\n", "", {"x": [1, NAN, 3]}),
        ("a,b\n1,2\n<3,4\n", "--na '<3'", {"a": [1, NAN], "b": [2, 4]}),
        ("a,b\n1,2\n<3,4\n<5,4\n", "--na '<*'", {"a": [1, NAN, NAN], "b": [2, 4, 4]}),
        ("a,b\n1,2\n-99,-99.0\n", "--na=-99", {"a": [1, NAN], "b": [2, NAN]}),
        ("a,b\n1,2\n3,inf\n", "--na inf", {"a": [1, 3], "b": [2, NAN]}),
        ("a;b\n1,234;5\n", "--decimal .", {"a": [1234], "b": [5]}),
        ("a;b\n1,234;5\n", "--decimal ,", {"a": [1.234], "b": [5]}),
        ("a;b\n1.234;5,5\n", "", {"a": [1234], "b": [5.5]}),
        ("a;b\n1.234;5\n", "", {"a": [1.234], "b": [5]}),
        ('a,b\n"1,234",5\n', "", {"a": [1234], "b": [5]}),
        ("a,b\n1,1990\n2,x\n", "--columns a", {"a": [1, 2]}),
        ("a,b\n1,x\n2,3\n4,y\n", "--kinds b=categorical", {"a": [1, 2, 4], "b": ["x", "3", "y"]}),
        ("a,b\n1,3\n2,3\n4,y\n", "--kinds b=categorical", {"a": [1, 2, 4], "b": ["3", "3", "y"]}),
        ("a,b\n1,3\n2,3\n4,y\n", "--kinds b=none", {"a": [1, 2, 4], "b": ["3", "3", "y"]}),
        ("a,b\n1,2\n#c,4\n7,8\n", "--na '#*'", {"a": [1, NAN, 7], "b": [2, 4, 8]}),
        ("ip,b\n192.168.100.101,1\n", "", {"ip": ["192.168.100.101"], "b": [1]}),
        ("ip\n192.168.0.1\n192.168.0.2\n", "", {"ip": ["192.168.0.1", "192.168.0.2"]}),
        ("a,b,b,b.1\n1,2,3,4\n", "", {"a": [1], "b": [2], "b.2": [3], "b.1": [4]}),
    ],
)  # fmt: skip
def test_cells(text, options, expected):
    found = columns(read(text, options))
    assert list(found) == list(expected)
    for title, cells in expected.items():
        np.testing.assert_array_equal(np.array(found[title]), np.array(cells))


@pytest.mark.parametrize(
    ("text", "n", "titles", "told"),
    [
        ("1,2,3\n4,5,6\n", 2, "123", ""),
        ("1,2,3\n7,9,2\n5,1,1\n", 3, "123", "taken as a row, though its numbers may be titles; if"),
        ("a,b,c\n4,5,6\n", 1, "abc", ""),
        ("0,1,2\n4,5,6\n", 1, "012", ""),  # as pandas writes unnamed columns
        ("0,1\n4,5\n", 2, "12", ""),
        ("7\n1\n2\n", 3, "1", ""),
        ("id,1990,1991\n1,2.5,3\n2,1,4\n", 2, ["id", "1990", "1991"], ""),
        ("land,1990,1991\nA,1700.5,3\nB,1800,1850\nC,1,4\n", 3, ["land", "1990", "1991"], ""),
        ("name,1990,1991\nA,1992,1993\n", 2, "123", ""),  # born and died
        ("1990,1991\n1,2\n", 2, "12", "taken as a row, though its numbers may be titles; if they"),
        ("name,1990\nA,850\nA,900\n", 2, ["name", "1990"], "the header, though it holds numbers; "),
        ("id,5,7\n1,2.5,3\n2,1,4\n", 2, ["id", "5", "7"], "the header, though it holds numbers; i"),
        ("a,b\nc,b\nc,d\n", 2, "ab", "the header, though 'b' is in a row below, too"),
        ("5.1,setosa\n4.9,setosa\n", 2, "12", ""),
        ("2024-01-31,1\n2024-02-29,2\n2024-01-31,3\n", 3, "12", ""),
        ('"a\nb",c\n1,2\n3,4\n', 2, ["a\nb", "c"], ""),
        ("b,c\nr1,1,2\nr2,3,4\nr3,9,8\n", 3, ["", "b", "c"], ""),  # R leaves out a title
        ("b,c\n1,2,\n3,4,\n90,8,\n", 3, "bc", "3 is left out: no name, and no values"),
        (",b,c\n0,1,2\n1,2,5\n2,8,9\n", 3, "bc", "1 is left out: no name, and it numbers"),
        ('"","b","c"\n"1",1,2\n"2",2,5\n', 2, "bc", "1 is left out: no name, and it numbers"),
    ],
)  # fmt: skip
def test_header(text, n, titles, told):
    options = "--columns :" if titles[0] == "" else ""
    table = read(text, options)
    assert (table.n_rows, table.titles) == (n, list(titles))
    notes = [note for note in table.notes if "header" in note or "row" in note or "name" in note]
    assert len(notes) == bool(told)
    assert told in "".join(notes)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("first", "is_header"),
    [
        ("sample,400.5,405.5,410.5", "doubtful"),
        ("400.5,401.0,411.5,417.0,420.5", "doubtful"),
        ("id,0.1,0.5", "doubtful"),
        (",400.5,390.5", "sure"),
        ("inf,b", "sure"),
        ("0,0.01,2.5", "no"),  # numbers of rows, and numbers that happen to rise
        ("0.2,0.4,0.6", "no"),  # like the values below
    ],
)
def test_a_header_with_numbers(seed, first, is_header):
    rng, cells = np.random.default_rng(seed), first.split(",")
    rows = [[f"{x:.3f}" for x in rng.random(len(cells))] for _ in range(40)]
    for i, row in enumerate(rows):
        if cells[0] in ("sample", ""):
            row[0] = f"s{i}"
        elif cells[0] in ("id", "0"):
            row[0] = str(i + 1)
        if cells[0] == "id":
            row[1:] = sorted(row[1:], reverse=True)
    sure = {"sure": (True, None), "doubtful": (True, "though it holds numbers")}
    assert find_header(cells, rows) == sure.get(is_header, (False, None))
    if is_header == "doubtful":  # a few rows do not tell
        assert find_header(cells, rows[:8]) == (False, None)


@pytest.mark.parametrize(
    ("cells", "decimal", "numbers"),
    [
        (["1,234.5", "999"], "", [1234.5, 999]),
        (["1.234,5", "999"], "", [1234.5, 999]),
        (["1.234.567", "2.000"], "", [1234567, 2000]),
        (["1'234", "5.25"], "", [1234, 5.25]),
        (["1\u202f234,5", "7"], "", [1234.5, 7]),
        (["\u22125,5", "7"], "", [-5.5, 7]),
        (["$5", "-$7.50"], "", [5, -7.5]),
        (["(5.5)", "7 \u20ac"], "", [-5.5, 7]),
        (["12.5 %", "7%"], "", [12.5, 7]),
        (["0,250", "1,125"], "", [0.25, 1.125]),
        (["1e3", "2,5e-2"], "", [1000, 0.025]),
        (["1,234"], ".", [1234]),
        (["1,234"], ",", [1.234]),
        (["1,234", "5"], "", None),
        (["1,234", "1.234"], "", None),
        (["0,5", "0.5"], "", None),
    ],
)
def test_signs_in_numbers(cells, decimal, numbers):
    written = [taken_apart(cell) for cell in cells]
    signs = signs_of(written, {decimal} - {""}, by_commas=False)
    assert (signs and [number.value(*signs) for number in written]) == numbers


@pytest.mark.parametrize("cell", ["", "-", "$", "a1", "1-2", "1.2.3", "1,23,4", "12,34.5", "5 kg"])
def test_words_are_no_numbers_with_signs(cell):
    assert taken_apart(cell) is None


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        ("", "", "t.csv is empty"),
        ("", "\n \n\n", "t.csv is empty"),
        ("", "a,b\n", "t.csv has a header but no rows"),
        ("", "a,b\n1,2\n3\n", "t.csv, line 3: 1 cell, but 2 in line 1; --skip-rows 3 leaves it"),
        ("", "1,2\n\n3,4,5\n", "t.csv, line 3: 3 cells, but 2 in line 1"),
        ("", "Place,Bern\na,b,c\n1,2,5\n3,4,5\n", "; --skip-rows 1 leaves it out"),
        ("", "a,b\n1,2\n3,4\n5,x4\n", "line 4, column b: 'x4' is not a number; --na x4 takes it"),
        ("", "a,b\n1,2\n3,4\n3,1_1\n", "line 4, column b: '1_1' is not a number; --na 1_1 takes"),
        ("", "a,b\n1,2\n3,4\n3,\uff11\n", "column b: '\uff11' is not a number"),
        ("", "a\n1\n2\n" + "x" * 99, f"line 4, column a: '{'x' * 27}...' is not a number"),
        ("", "a,b\n1,2\n3,4\n8o,9\n", "--na 8o takes it as missing, --skip-rows 4 leaves the row"),
        ("", "x;y\n1.5;2\n2.5;2\n1,5;2\n", "line 4, column x: '1,5' is not a number; --na"),
        ("", "a,b\n1,2\n3,4\na,b\n1,2\na,b\n5,6\n", "some lines repeat the header: --skip-rows 4,"),
        ("", "a,b\n1,2\n3,-inf\n", "t.csv, line 3, column b: infinite value; --na=-inf takes"),
        ("", "a,b\n1,x\n1e999,y\n", "t.csv, line 3, column a: infinite value; --na inf takes"),
        ("", ",a,b\n7,1,2\n", "column 1 has no name in the header; if it only numbers the rows, l"),
        ("--columns :b", ",a,,b\n1,2,3,4\n", "column 1 has no name in the header"),
        ("", "a\0,b\n1,2\n", "t.csv is not a text file in UTF-8"),
        ("", "a,b\n1,2\n3," + "4" * 200_000, "line 3: a cell has more than 131,072 characters"),
        ("", "a;b\n1;12,000\n2;3\n", "'12,000', which may be 12000 or 12.000: give --decimal . or"),
        ("", "a;b\n1;2,500\n2;<3,5\n4;3\n", "may be 2500 or 2.500, and '<3,5', which is no number"),
        ("", "a;b\n$1;2\n\u20ac2;3\n", "column a has several currencies, $ and \u20ac; --exclude "),
        ("", "a;b\n1%;2\n2;3\n", "column a has numbers with and without %; --exclude a leaves it"),
        ("", "a,b\n1.6 kg,2\n300 g,3\n", "column a has numbers with units, like '1.6 kg': write"),
        ("", "a,b\n" + "1,2\n" * 20 + "-999,3\n", "column a: -999 in 1 row, all others from 1 to "),
        ("", "x,y\n1,2\n" + '3,"4\n5,6\n' * 2, "line 3: a quote begins that is not closed, so tha"),
        ("", 'x,y\n1,2\n3,"4\n5,6\n7,8\n', "line 3: a quote begins that is not closed, so that on"),
        ("--encoding ascii", "größe\n1\n", "t.csv is not a text file in ascii: 'ascii' codec"),
        ("--encoding idna", "a,b\n1,2\n" + "x" * 80 + "\xfc.y,3\n", "t.csv is not a text file in "),
        ("--encoding hex", "a,b\n1,2\n", "--encoding hex: "),
        ("--encoding klingon", "a,b\n1,2\n", "--encoding klingon: "),
        ("--decimal ,", "a,b\n1,2\n3,4\n", "--decimal ,: t.csv is separated by commas; it must be"),
        ("--decimal ,", '"1,5","2,5"\n"3,5","4,5"\n', "t.csv is separated by commas"),
        ("--decimal ,", "a;b\n1,5;2\n1;2.5\n1;3\n", "line 3, column b: '2.5' is not a number"),
        ("--skip-rows 2,40", "a,b\n1,2\n3,4\n", "--skip-rows 40: t.csv has 3 lines"),
        ("--skip-rows none", "a,b\n1,2\n3,4\nTotal,6\n", "line 4, column a: 'Total' is not a numb"),
        ("--columns c", "a,b\n1,2\n", "--columns c: t.csv has no column 'c', but 2 columns: a, b"),
        ("--columns a,a", "a,b\n1,2\n", "--columns a,a: names a column twice"),
        ("--exclude a,b", "a,b\n1,2\n", "--exclude a,b: leaves no column of t.csv"),
        ("--keep c", "a,b\n1,2\n", "--keep c: no column 'c'"),
        ("--scale", "a,b\nx,2\n", "column a ('x') not numeric; --exclude a leaves it out; without"),
        ("--scale", "a,b,c\nu,red,\n3,blue,1\n", "columns a ('u'), b ('red') not numeric"),
        ("--shapes", "a,b\n1,\n3,4\n", "line 2, column b: missing value; --drop-missing leaves su"),
        ("--shapes", "a,b\n1,\n3,\n", "column b is empty; --exclude b leaves it out"),
        ("--drop-missing", "a,b\n1,\n,2\n", "--drop-missing leaves no row, each has a missing val"),
        ("--drop-missing", "a,b\n1,2\nNA,inf\n", "line 3, column b: infinite value"),
    ],
)  # fmt: skip
def test_text_refused(options, text, message):
    assert message in refused(text, options)


@pytest.mark.parametrize("n", [4, 20, 3000])
def test_lines_are_named_wherever_they_are(n):
    """Within the first rows, in the first block and far below."""
    lines = ["a,b"] + ["1,2.5"] * n
    for cell, message in (("inf", "infinite value"), ("8o", "'8o' is not a number")):
        lines[n - 1] = f"1,{cell}"
        assert f"line {n}, column b: {message}" in refused("\n".join(lines))
    lines[n - 1] = "1"
    assert f"line {n}: 1 cell, but 2 in line 1; --skip-rows {n}" in refused("\n".join(lines))
    lines[n - 1] = "1,?"
    assert f"line {n}, column b: missing" in refused("\n".join(lines), "--scale")
    assert read("\n".join(lines)).why == f"line {n}, column b: missing value"


SHARES = [0.0, 0.001, 0.2]
ODD = ["NA", "", " 7 ", "1e3", "-0", "+5", "nan", ".5", "5.", '"6"', "1.500", "00.5", "0x1", "1_0"]
ODD += ["-999", "12", "$5", "1,5", "2.000,5", "(3)", "x", "007", "\u22123", "\u0661", "INF", "n.a."]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("seed", range(12))
def test_blocks_of_plain_numbers_are_read_alike(seed, share, monkeypatch):
    """The same table, notes and errors where each cell is looked at."""
    rng = np.random.default_rng(seed)
    sign = ",;"[seed % 2]
    kinds = rng.choice([cell for cell in ODD if sign not in cell], size=2)
    rows = [[f"{x:.3f}" for x in rng.normal(size=3)] for _ in range(2000)]
    if seed % 3 == 0:
        rows = [[str(x) for x in rng.integers(0, 50, 3)] for _ in range(2000)]
    for row in rows[:: 1 if seed % 4 else 2][int(seed % 5 == 0) * 1500 :]:
        for j in range(3):
            if rng.random() < share:
                row[j] = str(rng.choice(kinds))
    lines = [sign.join(row) for row in rows] + [sign.join(["Total", "5", "6"])] * (seed % 2)
    text = "\n".join([sign.join(["a", "1990", "c"] if seed % 2 else "abc"), *lines]) + "\n"

    def outcome():
        try:
            table = read(text, "--na inf")
        except UserError as error:
            return str(error)
        return table.titles, table.notes, table.why, columns(table)

    quick = outcome()
    used = []
    look = Rows.plain_numbers
    monkeypatch.setattr(Rows, "plain_numbers", lambda *args: used.append(look(*args)))
    np.testing.assert_equal(quick, outcome())
    assert share or any(block is not None for block in used)


def test_a_column_of_words_that_begins_late():
    """The words of all rows are kept, also of those that were numbers before."""
    text = "a,b\n" + "1,2.50\n" * 5000 + "3,x\n3,y\n" * 5001
    table = read(text)
    assert table.titles == ["a", "b"]
    assert table.X["b"][[0, 4999, 5000]].tolist() == ["2.50", "2.50", "x"]
    table = read("a,b\n" + "x,1\n" * 200 + "2,1\n" * 5000, "--na x")
    assert np.nansum(table.X["a"]) == 10_000
    # a decimal comma far below
    table = read("a;b\n" + "1;2\n" * 5000 + "1;2,5\n")
    assert table.X[[0, -1]].tolist() == [[1, 2], [1, 2.5]]
    assert any("',' is the decimal sign" in note for note in table.notes)


@pytest.mark.parametrize(
    ("within", "below", "n", "lines"),
    [
        ([], ["TOTAL (n=40)"], 40, ""),
        ([], ["Average:", "Std. Dev."], 40, ""),
        ([], ["Mean", "S.D.", "Min", "Max"], 40, ""),
        (["Total north"], ["Total"], 41, "22"),
        (["Subtotal"], [], 41, "22"),
        ([], ["mean girls"], 41, ""),  # the name of a row
        ([f"Total {i}" for i in range(20)], ["Total 20"], 61, ""),  # names that begin so
    ],
)
def test_totals(within, below, n, lines):
    """Those at the end are left out, those among the rows are told of."""
    rows = [f"c{i},{10 + i * i % 31},{i % 9}" for i in range(40)]
    within, below = ([f"{word},300,60" for word in words] for words in (within, below))
    text = "\n".join(["n,a,b", *rows[:20], *within, *rows[20:], *below]) + "\n"
    table = read(text)
    told = "\n".join(table.notes)
    assert table.n_rows == n
    assert told.count("is left out: a total") == 40 + len(within) + len(below) - n
    assert ("named as a total" in told) == bool(lines)
    assert f"--skip-rows {lines} leaves them out" in told or not lines
    assert read(text, "--skip-rows none").n_rows == 40 + len(within) + len(below)


def test_a_quote_that_is_not_closed():
    """A single one at the end is none; where it takes in rows, the lines are named."""
    assert read('a,b\n1,2\n3,4\n9,"8').X.tolist() == [[1, 2], [3, 4], [9, 8]]
    rows = [f"{i % 7},{i % 5},plain" for i in range(60)]
    rows[19] = '5,4,"one, two\nthree, four, five"'
    assert read("\n".join(["x,y,note", *rows])).n_rows == 60
    for i in (19, 39):
        rows[i] = f'{i % 7},{i % 5},"unbalanced'
    message = refused("\n".join(["x,y,note", *rows]))
    assert "t.csv, line 21: a quote begins that is not closed" in message
    assert typed(message) == "--skip-rows 21,41"
    assert read("\n".join(["x,y,note", *rows]), typed(message)).n_rows == 58


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("5,\n# 1,2\n3,4\n", 0),  # the first row is no title
        ("7\n# c\n8\n", 0),
        ("# c\n7\n8\n", 2),
        ("a,b\n1,2\n# c\n3,4\n", 0),  # below the header it is no comment
        ("a,b\n#1,2\n#2,3\n", 2),
        ("#id,b\n1,2\n3,4\n", 2),
    ],
)
def test_comments(text, n):
    if n:
        assert read(text).n_rows == n
    else:
        assert "line 2" in refused(text) or "line 3" in refused(text)


def test_text_in_another_encoding():
    text = "x,y\n1,2\n3,4 Größe\n"
    message = refused(text.encode("cp1252"))
    assert "t.csv is not a text file in UTF-8: byte 0xf6 in line 3; --encoding" in message
    assert "--encoding cp1252 (western European) reads '3,4 Größe' there" in message
    assert columns(read(text.encode("cp1252"), "--encoding cp1252"))["y"][1] == "4 Größe"
    assert typed(refused(text.encode("utf-16"))) == "--encoding utf-16"
    packed = gzip.compress(b"x\n" + b"1\n" * 18_000 + b"\xa7\n")
    assert "byte 0xa7 in line 18002; " in refused(packed, name="t.csv.gz")


def test_bad_compressed_text():
    whole = gzip.compress(as_csv(np.random.default_rng(0).normal(size=(60, 3)), "x,y,z"))
    for content, message in [
        (whole[: len(whole) // 2], "t.csv.gz: Compressed file ended"),
        (whole[:60] + b"abcdefghijk" + whole[71:], "cannot read t.csv.gz: Error -3"),
        (b"1,2\n", "t.csv.gz: Not a gzipped file"),
        (whole + b"and more", "t.csv.gz: Not a gzipped file"),
        (gzip.compress(b""), "t.csv.gz is empty"),
    ]:
        assert message in refused(content, name="t.csv.gz")
    assert "its name must end in .csv.gz" in refused(gzip.compress(b"a,b\n1,2\n"))


@pytest.mark.timeout(120)  # a loop over pairs of titles takes longer
def test_thousands_of_titles():
    names = [f"name {i}" for i in range(20_000)]
    for titles in (names, ["x"] * 20_000):
        text = "\n".join([",".join(titles), *[",".join(["1.5"] * 20_000)] * 3])
        table = read(text, "--columns :")
        assert len(set(table.titles)) == 20_000
        assert table.X.shape == (3, 20_000)


def test_times_and_dates_are_left_out(capsys):
    rows = "".join(
        f"{i % 5},2024-01-{1 + i % 28:02},{i % 24:02}:{i % 60:02},{i % 7}\n" for i in range(60)
    )
    write("t.csv", "a,day,clock,b\n" + rows + ",2024-01-01,9:15 PM,1\n")
    assert main(["t.csv"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"day +left out +dates", out)
    assert re.search(r"clock +left out +dates", out)


def test_columns_that_tell_the_same(capsys):
    rng = np.random.default_rng(0)
    city = rng.integers(0, 30, 900)
    lines = [f"{c * 37 % 91 + 100},city {c},state {c // 6},{rng.normal():.3f}" for c in city]
    table = read("code,City,State,x\n" + "\n".join(lines) + "\n")
    (note,) = table.notes
    assert "columns code, City, State tell nearly the same" in note
    assert typed(note) == "--exclude City,State"
    lines = [f"w{c},v{d},{c + d}" for c, d in rng.integers(0, 5, (900, 2))]
    assert read("a,b,c\n" + "\n".join(lines)).notes == ()


def test_merged_cells_are_told():
    lines = [f"{'' if i % 10 else f'kind {i}'},{i % 7},{i % 3}" for i in range(60)]
    (note,) = read("k,a,b\n" + "\n".join(lines)).notes
    assert "column k: 90% of the cells are missing" in note
    lines = [f"{'' if i % 3 else 'x'},{i % 7},{i % 3}" for i in range(2, 60)]
    assert read("k,a,b\n" + "\n".join(lines)).notes == ()


# Other files


def workbook(rows, name="t.xlsx"):
    """An .xlsx file of one worksheet."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(name)
    return book


ROWS = [["Report"], [], ["a", "b"], *([i % 7, i / 4] for i in range(30))]


@pytest.mark.timeout(120)  # a loop over all cells up to the last row takes hours
def test_worksheets():
    book = workbook(ROWS)
    table = read(Path("t.xlsx").read_bytes(), name="t.xlsx")
    assert table.X[:2].tolist() == [[0, 0], [1, 0.25]]
    assert "t.xlsx, line 1 above the header is left out" in table.notes
    book.active.cell(row=1_048_576, column=16_384).number_format = "0.00"
    book.create_sheet("Notes").append(["about"])
    book.save("t.xlsx")
    table = read(Path("t.xlsx").read_bytes(), name="t.xlsx")
    assert table.X.shape == (30, 2)
    assert "t.xlsx, worksheet 'Sheet' is read; others: 'Notes'" in table.notes
    book.move_sheet("Notes", -1)
    book.save("t.xlsx")
    message = refused(Path("t.xlsx").read_bytes(), name="t.xlsx")
    assert "worksheet, 'Notes', holds no table; others: 'Sheet'; save one as .csv" in message


@pytest.mark.parametrize(
    ("pattern", "other", "is_read"),
    [
        (b'<dimension ref="[^"]*"', b'<dimension ref="A1"', True),
        (b'r="A4"', b'r="4A"', False),
        (b"<v>", b"<v>x", False),
        (b"</row>", b"", False),
        (b".*", b"", False),
    ],
)
def test_worksheets_that_are_not_as_they_should_be(pattern, other, is_read):
    """A wrong dimension loses no row; what is damaged ends in one line."""
    workbook(ROWS)
    with zipfile.ZipFile("t.xlsx") as file:
        parts = {part: file.read(part) for part in file.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    parts[sheet] = re.sub(pattern, other, parts[sheet], flags=re.DOTALL)
    with zipfile.ZipFile("t.xlsx", "w") as file:
        for part, content in parts.items():
            file.writestr(part, content)
    if is_read:
        assert read(Path("t.xlsx").read_bytes(), name="t.xlsx").X.shape == (30, 2)
    else:
        assert "t.xlsx is no .xlsx file that can" in refused(
            Path("t.xlsx").read_bytes(), name="t.xlsx"
        )


def test_workbooks_of_other_cells():
    times = [[i, datetime.time(9, i), datetime.date(2024, 1, 1 + i), i > 5] for i in range(12)]
    workbook([["a", "t", "d", "f"], *times])
    found = columns(read(Path("t.xlsx").read_bytes(), name="t.xlsx"))
    assert [found[title][0] for title in "tdf"] == ["09:00:00", "2024-01-01 00:00:00", "False"]
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.create_chartsheet("Chart").add_chart(openpyxl.chart.BarChart())
    del book["Sheet"]
    book.save("t.xlsx")
    assert "t.xlsx has no worksheet" in refused(Path("t.xlsx").read_bytes(), name="t.xlsx")
    workbook([])
    assert "t.xlsx is empty" in refused(Path("t.xlsx").read_bytes(), name="t.xlsx")
    assert "t.xlsx is no .xlsx file" in refused("a,b\n1,2\n", name="t.xlsx")


def npy_of(shape, descr="<f8"):
    """A .npy file whose header states this shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return file.getvalue() + b"\0" * 64


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array(3.0), "holds an array of shape (), not rows and columns"),
        (np.zeros((2, 2, 2)), "holds an array of shape (2, 2, 2), not rows and columns"),
        (np.zeros((2, 2), dtype=complex), "holds values of type complex128, not real numbers"),
        (np.array([["a", "b"]]), "holds values of type <U1, not real numbers"),
        (np.array([[1, "b"]], dtype=object), "Python objects"),
        (np.zeros((0, 3)), "0"),
        (np.zeros((3, 0)), "0"),
        (np.array([[1.0, -np.inf], [2.0, 3.0]], dtype="f4"), "row 1, column 2: infinite value"),
        (b"1,2,3\n4,5,6\n", "magic string"),
        (as_npy(np.zeros((100, 3)))[:-8], "t.npy"),
        (npy_of((10**15, 10**6)), "t.npy"),
        (npy_of((-1, 3)), "t.npy"),
        (npy_of((2, 3)).replace(b"(2, 3)", b"(2, x)"), "t.npy"),
        (npy_of((2, 3)).replace(b"<f8", b"<q9"), "t.npy"),
    ],
)
def test_npy_refused(array, message):
    assert message in refused(array, name="t.npy")


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f4", "i2", "u1", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_is_mapped_not_read(dtype, order):
    X = np.asarray(np.random.default_rng(0).integers(0, 2, (50, 3)), dtype=dtype, order=order)
    table = read(X, name="t.npy")
    assert isinstance(table.X, np.memmap)
    assert not table.X.flags.writeable
    assert table.X.dtype == X.dtype
    assert np.array_equal(table.X, X)
    X = np.array([[1, 2], [np.nan, 3], [4, 5]])
    table = read(X, "--drop-missing", name="t.npy")
    assert (table.X.tolist(), table.kept.tolist()) == ([[1, 2], [4, 5]], [True, False, True])
    assert read(X, name="t.npy").why == "row 2, column 1: missing value"
    assert "--decimal: t.npy is not a text file" in refused(X, "--decimal ,", name="t.npy")


def as_parquet(columns):
    """A .parquet file."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    return pd.DataFrame(columns).to_parquet(index=False)


def test_parquet():
    pd = pytest.importorskip("pandas")
    frame = {"a": [1.0, 2.0], "b": [5, 6], "c": ["u", "v"], "d": [True, False]}
    assert "column c (" in refused(as_parquet(frame), "--scale", name="t.parquet")
    table = read(as_parquet(frame), "--columns b,d,a", name="t.parquet")
    assert (table.X.tolist(), table.titles) == ([[5, 1, 1], [6, 0, 2]], ["b", "d", "a"])
    assert read(as_parquet(frame), name="t.parquet").is_mixed
    narrow = as_parquet({"a": np.array([1, 2], dtype="f4")})
    assert read(narrow, name="t.parquet").X.dtype == np.float32
    gaps = as_parquet({"a": pd.array([1, None], dtype="Int64")})
    message = refused(gaps, "--scale", name="t.parquet")
    assert "row 2, column a: missing value" in message
    frame = as_parquet({"a": [1.0, 2.0], "__index_level_0__": [7, 8]})
    table = read(frame, name="t.parquet")
    assert table.titles == ["a"]
    assert table.notes == ("t.parquet, column __index_level_0__ is left out: an index",)


def test_damaged_parquet():
    """No byte that is changed ends in more than one line."""
    whole = as_parquet({"a": np.arange(50.0), "b": list("uvwxy") * 10})
    rng = np.random.default_rng(0)
    for at in rng.integers(4, len(whole) - 4, 60):
        content = bytearray(whole)
        content[at] ^= 1 << int(rng.integers(8))
        outcome_of(bytes(content), "t.parquet")
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    twice = arrow.Table.from_arrays([arrow.array([1.0, 2.0])] * 2, names=["a", "a"])
    parquet.write_table(twice, "twice.parquet")
    message = refused(Path("twice.parquet").read_bytes(), name="t.parquet")
    assert message == "t.parquet has 2 columns 'a'; rename all but one"


def test_files_that_cannot_be_read(monkeypatch):
    message = "must end in .csv, .tsv, .txt, .dat, .xlsx, .npy or .parquet, or in .gz after .csv, "
    for name in ("t.doc", "feature", "t.gz", "t.npy.gz", "t.csv.gz.gz"):
        assert f"{name}: the name {message}" in refused("1,2\n", name=name)
    for name in ("t.npy", "t.parquet", "t.tsv", "t.xlsx"):
        assert f"{name} is empty" in refused("", name=name)
    with pytest.raises(UserError, match="cannot read none.csv: No such file"):
        read_table("none.csv", None)
    for name, advice in [
        ("t.json", 'python -c \'import pandas; pandas.read_json("t.json").to_csv("t.csv"'),
        ("t.html", "[0].to_csv"),
        ("t.sav", "pandas.read_spss("),
        ("t.rds", "in R, write.csv("),
    ]:
        assert advice in refused("x", name=name)
    for package in ("openpyxl", "pandas"):
        monkeypatch.setitem(sys.modules, package, None)
    assert "pip install openpyxl, or save the worksheet as .csv" in refused("x", name="t.xlsx")
    assert "pip install 'smallvar[parquet]'" in refused("PAR1", name="t.parquet")


def test_memory():
    """A large file of short numbers is read within 1.5 times its size."""
    line = ",".join(["0.125"] * 20) + "\n"
    size = write("t.csv", "a," * 19 + "a\n" + line * 200_000) and Path("t.csv").stat().st_size
    script = (
        "import resource, numpy as np\n"
        "from smallvar._cli.table import read_table; from smallvar._cli.arguments import parse\n"
        "open('s.csv', 'w').write('a,b\\n1,2\\n'); read_table('s.csv', parse(['s.csv']))\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "before = peak(); table = read_table('t.csv', parse(['t.csv'])); print(peak() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1.5 * size
