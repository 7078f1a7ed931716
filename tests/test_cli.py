"""The command line: what it reads, refuses, prints and writes."""

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import smallvar
from smallvar import __main__ as cli
from smallvar.__main__ import main

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and pipes")
AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


@pytest.fixture
def run(capsys):
    """Run the command line in this process: exit code, standard output, standard error."""

    def run(*argv):
        code = main([str(argument) for argument in argv])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def ran(run):
    """Run what must succeed and take its report apart."""

    def ran(*argv):
        code, out, err = run(*argv)
        assert (code, err) == (0, "")
        lines = [line.split(maxsplit=1) for line in out.splitlines() if line]
        return dict(line for line in lines if len(line) == 2)

    return ran


@pytest.fixture
def refused(run):
    """Run what must be refused, in one line on standard error; returns the line."""

    def refused(*argv):
        code, out, err = run(*argv)
        assert (code, out) == (2, "")
        assert err.startswith("smallvar: ")
        assert err.endswith("\n")
        assert err.count("\n") == 1
        return err

    return refused


@pytest.fixture
def fitted(monkeypatch):
    """Record the estimator and the data of every fit."""
    fits = []
    fit = smallvar.DPMeans.fit

    def recording(self, X, *args, **kwargs):
        fits.append((self, X))
        return fit(self, X, *args, **kwargs)

    monkeypatch.setattr(smallvar.DPMeans, "fit", recording)
    return fits


@pytest.fixture
def no_fit(monkeypatch):
    """Fail if a fit is started."""

    def fit(self, X):
        pytest.fail("the fit was started")

    monkeypatch.setattr(smallvar.DPMeans, "fit", fit)


@pytest.fixture
def blobs(tmp_path):
    """Three clusters of 20 points each, in a csv file."""
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0, 0.0, 0.0], [10.0, 0.0, 5.0], [0.0, 20.0, 5.0]], 20, axis=0)
    X += rng.normal(size=X.shape)
    np.savetxt(tmp_path / "blobs.csv", X, delimiter=",", header="x,y,z", comments="", fmt="%.17g")
    return tmp_path / "blobs.csv", X


def write(path, text):
    path.write_bytes(text.encode())
    return path


def python(*argv, **options):
    """Run Python in a process of its own."""
    return subprocess.run(
        [sys.executable, *map(str, argv)], capture_output=True, text=True, timeout=120, **options
    )


# What is printed


def test_report_is_that_of_the_labels_written(ran, blobs, tmp_path):
    path, X = blobs
    report = ran(path, "--lam", "60", "--out", tmp_path / "labels.csv")
    header, *lines = (tmp_path / "labels.csv").read_text().splitlines()
    labels = np.array(lines, dtype=int)
    assert header == "label"
    assert np.array_equal(labels, smallvar.DPMeans(60.0).fit(X).labels_)
    assert sorted(np.bincount(labels)) == [20, 20, 20]
    sse = sum(((X[labels == k] - X[labels == k].mean(axis=0)) ** 2).sum() for k in range(3))
    assert report["data"] == "blobs.csv, 3 columns: x, y, z"
    assert (report["n"], report["d"], report["K"]) == ("60", "3", "3")
    assert report["lam"] == "60 (given)"
    assert float(report["SSE"]) == pytest.approx(sse)
    assert report["objective"].endswith(" (SSE + lam K)")
    assert float(report["objective"].split()[0]) == pytest.approx(sse + 60 * 3)
    assert report["sizes"] == "20, 20, 20"
    assert int(report["sweeps"]) >= 2
    assert re.fullmatch(r"\d+\.\d+ reading, \d+\.\d+ fitting", report["seconds"])
    assert report["labels"] == str(tmp_path / "labels.csv")
    assert "picture" not in report


@pytest.mark.parametrize(("argv", "guess"), [([], 8), (["--n-clusters", 3], 3)])
def test_penalty_from_a_guess(ran, blobs, argv, guess):
    path, X = blobs
    value, origin = ran(path, *argv)["lam"].split(maxsplit=1)
    assert float(value) == pytest.approx(smallvar.farthest_first_lambda(X, guess), rel=1e-7)
    assert origin == f"(farthest-first, for a guess of {guess} clusters)"


def test_default_guess_gives_way_to_few_rows(ran, tmp_path):
    report = ran(write(tmp_path / "few.csv", "0,0\n1,1\n9,9\n"))
    assert report["n"] == "3"
    assert report["lam"].endswith("(farthest-first, for a guess of 3 clusters)")


def test_without_data_a_real_set_is_clustered(ran, run, fitted):
    report = ran()
    assert np.array_equal(fitted[0][1], load_digits().data)
    assert (report["n"], report["d"]) == ("1797", "64")
    _, out, _ = run("cluster", "--columns", "pixel_0_2:pixel_0_4")
    assert "scikit-learn" in out.splitlines()[0]
    assert "smallvar FILE" in out.splitlines()[1]
    assert "3 columns: pixel_0_2, pixel_0_3, pixel_0_4" in out


def test_sizes_are_cut_where_there_are_many(ran, tmp_path):
    X = np.repeat(np.arange(20.0), np.arange(1, 21)).reshape(-1, 1) * 10
    np.save(tmp_path / "many.npy", X)
    sizes = ran(tmp_path / "many.npy", "--lam", "0.5")["sizes"]
    assert sizes == "20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9 and 8 more of 8 to 1 points"


def test_options_reach_the_estimator(ran, blobs, fitted):
    path, _ = blobs
    ran(path)
    ran(
        path,
        *["--lam", "3", "--algorithm", "collapsed", "--max-clusters", "4"],
        *["--threads", "2", "--seed", "7"],
    )
    plain, chosen = (estimator.get_params() for estimator, _ in fitted)
    assert plain == smallvar.DPMeans().get_params()
    changed = {name: value for name, value in chosen.items() if value != plain[name]}
    assert changed == {
        "lam": 3.0,
        "algorithm": "collapsed",
        "max_clusters": 4,
        "n_threads": 2,
        "random_state": 7,
        "shuffle": True,
    }


def test_verbose_prints_a_line_per_sweep(run, blobs):
    _, quiet, _ = run(blobs[0], "--lam", "60")
    _, verbose, _ = run(blobs[0], "--lam", "60", "--verbose")
    sweeps = int(re.search(r"^sweeps +(\d+)$", verbose, re.M)[1])
    assert len(verbose.splitlines()) == len(quiet.splitlines()) + sweeps


def test_warnings_become_one_line(run, blobs, monkeypatch):
    import warnings

    fit = smallvar.DPMeans.fit

    def warning(self, X):
        warnings.warn("not\nconverged", UserWarning, stacklevel=1)
        return fit(self, X)

    monkeypatch.setattr(smallvar.DPMeans, "fit", warning)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, out, err = run(blobs[0])
    assert code == 0
    assert "objective" in out
    assert err == "smallvar: warning: not converged\n"


def test_names_the_terminal_cannot_show(tmp_path):
    path = write(tmp_path / "länge.csv", "größe,x\n1,2\n3,4\n")
    done = python("-m", "smallvar", path, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\xf6\\xdfe" in done.stdout


# Commands and arguments


def test_a_command_is_one_function(monkeypatch, run):
    given = []
    monkeypatch.setitem(cli.COMMANDS, "other", given.append)
    assert run("other", "a", "--b") == (0, "", "")
    assert given == [["a", "--b"]]
    assert "commands: cluster, other (default: cluster)" in run("--help")[1]


def test_a_file_may_be_called_like_a_command(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "./cluster: No such file" in refused("./cluster")
    assert " cluster: No such file" in refused("cluster", "cluster")


@pytest.mark.parametrize("argv", [["--version"], ["cluster", "--version"]])
def test_version(run, argv):
    assert run(*argv) == (0, f"smallvar {smallvar.__version__}\n", "")


@pytest.mark.parametrize("argv", [["--help"], ["cluster", "-h"]])
def test_help_is_complete(run, argv):
    code, out, err = run(*argv)
    assert (code, err) == (0, "")
    for option in (
        *("--lam", "--n-clusters", "--algorithm", "--max-clusters", "--columns", "--out"),
        *("--plot", "--threads", "--seed", "--verbose", "--version", "--show-config"),
    ):
        assert f"  {option}" in out
    assert "squared data units" in " ".join(out.split())
    assert out.count("\n  smallvar ") == 2  # the examples


def test_show_config(run, capsys):
    smallvar.show_config()
    expected = capsys.readouterr().out
    assert run("--show-config") == (0, expected, "")
    assert smallvar.__version__ in expected


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--lam", "abc"], "argument --lam: must be a number >= 0, got 'abc'"),
        (["--lam", "-1"], "argument --lam: must be a number >= 0, got '-1'"),
        (["--lam", "nan"], "argument --lam: must be a number >= 0, got 'nan'"),
        (["--lam", "0"], "lam"),
        (["--lam", "2", "--n-clusters", "3"], "not allowed with"),
        (["--n-clusters", "0"], "argument --n-clusters: must be an integer >= 1, got '0'"),
        (["--n-clusters", "2.5"], "argument --n-clusters: must be an integer >= 1, got '2.5'"),
        (["--n-clusters", "61"], "n_clusters"),
        (["--max-clusters", "0"], "argument --max-clusters: must be an integer >= 1, got '0'"),
        (["--threads", "0"], "argument --threads: must be an integer >= 1, got '0'"),
        (["--seed", "-1"], "argument --seed: must be an integer >= 0, got '-1'"),
        (["--algorithm", "magic"], "invalid choice: 'magic'"),
        (["--alg", "serial"], "unrecognized arguments"),
        (["another.csv"], "unrecognized arguments: another.csv"),
        (["--out"], "expected one argument"),
    ],
)
def test_bad_arguments(refused, blobs, argv, message):
    assert message in refused(blobs[0], *argv)


# Reading text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.csv", "1,2.5\n3,-4e1\n"),
        ("header.csv", "a,b\n1,2.5\n3,-4e1\n"),
        ("no_newline.csv", "a,b\n1,2.5\n3,-4e1"),
        ("semicolon.csv", "a;b\n1;2.5\n3;-4e1\n"),
        ("comma_in_names.csv", "a, of 1;b, of 1\n1;2.5\n3;-4e1\n"),
        ("tab.csv", "a\tb\n1\t2.5\n3\t-4e1\n"),
        ("tab.tsv", "a\tb\n1\t2.5\n3\t-4e1\n"),
        ("SUFFIX.CSV", "a,b\n1,2.5\n3,-4e1\n"),
        ("bom.csv", "\ufeff1,2.5\n3,-4e1\n"),
        ("crlf.csv", "a,b\r\n1,2.5\r\n3,-4e1\r\n"),
        ("blank_lines.csv", "\n\na,b\n\n1,2.5\n   \n3,-4e1\n\n\n"),
        ("quoted.csv", '"a,1","b"\n"1","2.5"\n"3","-4e1"\n'),
        ("line_break.csv", '"a\nb",c\n1,2.5\n3,-4e1\n'),
        ("spaces.csv", " a , b \n 1 , 2.5 \n 3 , -4e1 \n"),
        ("some_numbers_missing_in_header.csv", "a,-\n1,2.5\n3,-4e1\n"),
    ],
)
def test_text_tables(ran, fitted, tmp_path, name, text):
    ran(write(tmp_path / name, text))
    (_, X) = fitted[0]
    assert X.dtype == np.float64
    assert np.array_equal(X, [[1.0, 2.5], [3.0, -40.0]])


@pytest.mark.parametrize(
    ("text", "n", "columns"),
    [
        ("1,2,3\n4,5,6\n", 2, "3 columns: 1, 2, 3"),
        ("a,b,c\n4,5,6\n", 1, "3 columns: a, b, c"),
        ("0,1,2\n4,5,6\n", 1, "3 columns: 0, 1, 2"),  # as pandas writes unnamed columns
        ("0,1\n4,5\n", 2, "2 columns: 1, 2"),
        ("x\n1\n2\n", 2, "1 column: x"),
        ("7\n1\n2\n", 3, "1 column: 1"),
        ("a,b,c,d,e,f,g\n1,2,3,4,5,6,7\n", 1, "7 columns: a, b, c, d, ..., g"),
    ],
)
def test_header_is_detected(ran, tmp_path, text, n, columns):
    report = ran(write(tmp_path / "t.csv", text))
    assert (report["n"], report["data"]) == (str(n), f"t.csv, {columns}")


def test_text_is_read_exactly(ran, fitted, tmp_path):
    X = np.random.default_rng(0).lognormal(sigma=20, size=(500, 7))
    np.savetxt(tmp_path / "t.csv", X, delimiter=",", fmt="%.17g")
    ran(tmp_path / "t.csv")
    assert np.array_equal(fitted[0][1], X)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv is empty"),
        ("\n \n\n", "t.csv is empty"),
        ("x\n1\n \n", "t.csv, line 3, column x: missing value"),
        ("a,b\n", "t.csv has a header but no rows"),
        ("a,b\n1,2\n3\n", "t.csv, line 3: 1 cell, but 2 in line 1"),
        ("1,2\n\n3,4,5\n", "t.csv, line 3: 3 cells, but 2 in line 1"),
        ("a,b\n1,2\n3,x4\n", "t.csv, line 3, column b: 'x4' is not a number"),
        ("1,2\n3,x4\n", "t.csv, line 2, column 2: 'x4' is not a number"),
        ("a\n1\n" + "x" * 99, f"t.csv, line 3, column a: '{'x' * 27}...' is not a number"),
        ("a;b\n1;2\n3,5;4\n", "t.csv, line 3, column a: '3,5' is not a number"),
        ("a,b\n1,2\n,4\n", "t.csv, line 3, column a: missing value"),
        ("a,b\n1,2\n3, \n", "t.csv, line 3, column b: missing value"),
        ("a,b\n1,NA\n3,4\n", "t.csv, line 2, column b: missing value"),
        ("a,b\n1,2\n\n3,NaN\n", "t.csv, line 4, column b: missing value"),
        ("1,2\n3,nan\n", "t.csv, line 2, column 2: missing value"),
        ("x\n1\n\n3\n", "t.csv, line 3: missing value"),
        ('x\n1\n""\n', "t.csv, line 3, column x: missing value"),
        ("a,b\n1,2\n3,-inf\n", "t.csv, line 3, column b: infinite value"),
        ("1,2\n3,1e999\n", "t.csv, line 2, column 2: infinite value"),
        ("a,b\n1,red\n3,blue\n", "t.csv, line 2: column b ('red') not numeric; choose others"),
        ("5.1,setosa\n4.9,setosa\n", "t.csv, line 1: column 2 ('setosa') not numeric"),
        ("a,b,c\nu,red,\n3,blue,1\n", "line 2: columns a ('u'), b ('red') not numeric"),
        (f"{'a,' * 9}b\n{'x,' * 9}y\n", "a ('x') and 5 more not numeric; choose others"),
        (",a,b\n0,1,2\n", "t.csv: column 1 has no name in the header"),
        (",0,1,2\n0,1,2,5\n", "t.csv: column 1 has no name in the header"),
        ("a\0,b\n1,2\n", "t.csv is not a text file in UTF-8"),
        ("a,b\n1,2\n3," + "4" * 200_000, "field larger than field limit"),
    ],
)
def test_bad_text(refused, no_fit, tmp_path, text, message):
    assert message in refused(write(tmp_path / "t.csv", text))


def test_far_into_a_file_the_line_is_right(refused, no_fit, tmp_path):
    lines = ["a,b"] + ["1,2"] * 3000
    lines[2500] = "1,inf"
    assert "line 2501, column b: infinite" in refused(write(tmp_path / "t.csv", "\n".join(lines)))
    lines[2500] = "1,?"
    assert "line 2501, column b: missing" in refused(write(tmp_path / "t.csv", "\n".join(lines)))


def test_files_that_cannot_be_read(refused, no_fit, tmp_path):
    assert "No such file" in refused(tmp_path / "none.csv")
    assert "No such file" in refused("none")
    (tmp_path / "folder.csv").mkdir()
    assert "is a directory" in refused(tmp_path / "folder.csv")
    path = write(tmp_path / "t.txt", "1,2\n")
    assert "must end in .csv, .tsv, .npy or .parquet" in refused(path)
    for name in ("t.npy", "t.parquet", "t.tsv"):
        assert f"{name} is empty" in refused(write(tmp_path / name, ""))


@pytest.mark.skipif(AS_ROOT or os.name != "posix", reason="nothing is closed to root")
def test_files_without_permission(refused, no_fit, blobs, tmp_path):
    blobs[0].chmod(0)
    assert "blobs.csv: Permission denied" in refused(blobs[0])
    (tmp_path / "closed").mkdir(mode=0o500)
    assert "Permission denied" in refused("--out", tmp_path / "closed" / "l.csv")


def test_memory_that_does_not_suffice(refused, blobs, monkeypatch):
    def fail(*args):
        raise MemoryError

    monkeypatch.setattr(smallvar.DPMeans, "fit", fail)
    assert "not enough memory to fit" in refused(blobs[0])
    monkeypatch.setattr(cli, "read_text", fail)
    assert "blobs.csv: not enough memory" in refused(blobs[0])


# Columns


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("a", [0]),
        ("c,a", [2, 0]),
        (" a , c ", [0, 2]),
        ("a:c", [0, 1, 2]),
        (":b", [0, 1]),
        ('"x,y",p:q', [3, 4]),
    ],
)
def test_columns_by_name(ran, fitted, tmp_path, columns, expected):
    path = write(tmp_path / "t.csv", 'a,b,c,"x,y",p:q,word\n0,1,2,3,4,w\n10,11,12,13,14,w\n')
    ran(path, "--columns", columns)
    assert np.array_equal(fitted[0][1], np.array([expected, np.add(expected, 10)]))


@pytest.mark.parametrize("suffix", ["csv", "npy"])
@pytest.mark.parametrize(
    ("columns", "expected"), [("1", [0]), ("3,1", [2, 0]), ("2:3", [1, 2]), ("2:", [1, 2, 3])]
)
def test_columns_by_position(ran, fitted, tmp_path, suffix, columns, expected):
    X = np.arange(12.0).reshape(3, 4)
    np.save(tmp_path / "t.npy", X)
    np.savetxt(tmp_path / "t.csv", X, delimiter=",")
    report = ran(tmp_path / f"t.{suffix}", "--columns", columns)
    assert np.array_equal(fitted[0][1], X[:, expected])
    assert report["data"].endswith(": " + ", ".join(str(i + 1) for i in expected))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("d", "t.csv has no column 'd', but 4 columns: a, b, b, c"),
        ("1", "t.csv has no column '1', but 4 columns"),
        ("a:d", "t.csv has no column 'd'"),
        ("b", "t.csv has 2 columns 'b'"),
        ("a,c,a", "names a column twice"),
        ("a,:c", "names a column twice"),
        ("", "names no column"),
        ("c:a", "names no column"),
        ("a,", "t.csv has no column ''"),
    ],
)
def test_bad_columns(refused, no_fit, tmp_path, columns, message):
    path = write(tmp_path / "t.csv", "a,b,b,c\n1,2,3,4\n")
    assert message in refused(path, "--columns", columns)


# Reading arrays


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f4", "i2", "u1", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_is_mapped_not_read(ran, fitted, tmp_path, dtype, order):
    X = np.asarray(np.random.default_rng(0).integers(0, 2, (50, 3)), dtype=dtype, order=order)
    np.save(tmp_path / "t.npy", X)
    report = ran(tmp_path / "t.npy", "--lam", "0.5")
    mapped = fitted[0][1]
    assert isinstance(mapped, np.memmap)
    assert not mapped.flags.writeable
    assert mapped.dtype == X.dtype
    assert np.array_equal(mapped, X)
    assert report["data"] == "t.npy, 3 columns: 1, 2, 3"
    assert int(report["K"]) == len(np.unique(X, axis=0))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array(3.0), "holds an array of shape (), not rows and columns"),
        (np.arange(3.0), "holds an array of shape (3,), not rows and columns"),
        (np.zeros((2, 2, 2)), "holds an array of shape (2, 2, 2), not rows and columns"),
        (np.zeros((2, 2), dtype=complex), "holds values of type complex128, not real numbers"),
        (np.array([["a", "b"]]), "holds values of type <U1, not real numbers"),
        (np.array([[1, "b"]], dtype=object), "Python objects"),
        (np.zeros((0, 3)), "has no values: 0 rows, 3 columns"),
        (np.zeros((3, 0)), "has no values: 3 rows, 0 columns"),
        (np.array([[1.0, 2.0], [np.nan, 3.0]]), "row 2, column 1: missing value"),
        (np.array([[1.0, -np.inf], [2.0, 3.0]], dtype="f4"), "row 1, column 2: infinite value"),
    ],
)
def test_bad_npy(refused, no_fit, tmp_path, array, message):
    np.save(tmp_path / "t.npy", array)
    assert message in refused(tmp_path / "t.npy")


def test_gap_far_into_an_array(refused, no_fit, tmp_path):
    X = np.zeros((700_000, 3), dtype="f4")
    X[650_000, 1] = np.nan
    np.save(tmp_path / "t.npy", X)
    assert "row 650001, column 2: missing value" in refused(tmp_path / "t.npy")


def test_damaged_npy(refused, no_fit, tmp_path):
    assert "magic string" in refused(write(tmp_path / "t.npy", "1,2,3\n4,5,6\n"))
    np.save(tmp_path / "t.npy", np.zeros((100, 3)))
    whole = (tmp_path / "t.npy").read_bytes()
    (tmp_path / "t.npy").write_bytes(whole[:-8])
    assert "file size" in refused(tmp_path / "t.npy")


def test_parquet(ran, refused, fitted, tmp_path):
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    path = tmp_path / "t.parquet"
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [5, 6], "c": ["u", "v"], "d": [True, False]})
    frame.to_parquet(path)
    assert "t.parquet: column c (" in refused(path)
    report = ran(path, "--columns", "b,d,a")
    assert np.array_equal(fitted[-1][1], [[5, 1, 1], [6, 0, 2]])
    assert report["data"] == "t.parquet, 3 columns: b, d, a"

    frame[["a"]].astype("f4").to_parquet(path)
    ran(path)
    assert fitted[-1][1].dtype == np.float32

    pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}).to_parquet(path)
    assert "row 2, column a: missing value" in refused(path)

    path.write_bytes(path.read_bytes()[:-4])
    assert "t.parquet: " in refused(path)


def test_parquet_without_pandas(refused, no_fit, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    message = refused(write(tmp_path / "t.parquet", "PAR1"))
    assert "needs pandas and pyarrow: pip install pandas pyarrow" in message


# Writing


def test_nothing_is_written_unless_asked_for(ran, blobs, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    ran(blobs[0])
    assert os.listdir() == []


def test_labels_replace_a_file_and_keep_link_and_mode(ran, blobs, tmp_path):
    target = write(tmp_path / "target.csv", "old")
    target.chmod(0o640)
    (tmp_path / "link.csv").symlink_to(target)
    ran(blobs[0], "--lam", "60", "--out", tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert len(target.read_text().splitlines()) == 61
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_labels_of_many_rows(ran, tmp_path):
    X = np.random.default_rng(0).integers(0, 5, (250_001, 1)).astype("f4") * 10
    np.save(tmp_path / "t.npy", X)
    ran(tmp_path / "t.npy", "--lam", "1", "--out", tmp_path / "labels.csv")
    labels = np.loadtxt(tmp_path / "labels.csv", skiprows=1, dtype=int)
    assert np.array_equal(labels, smallvar.DPMeans(1.0).fit(X).labels_)


@pytest.mark.parametrize("option", ["--out", "--plot"])
def test_targets_are_tried_before_the_fit(refused, no_fit, blobs, tmp_path, option):
    path, _ = blobs
    before = sorted(os.listdir(tmp_path))
    (tmp_path / "folder.png").mkdir()
    for name, message in [
        ("none/labels.png", "there is no folder"),
        ("folder.png", "not a file that can be replaced"),
        ("x" * 300 + ".png", "name too long"),
    ]:
        message = re.escape(f"smallvar: {option} {tmp_path / name}: ") + f".*{message}"
        assert re.match(message, refused(path, option, tmp_path / name), re.I)
    assert "this would overwrite the data" in refused(path, option, path)
    assert "not a file that can be replaced" in refused(path, option, os.devnull)
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "folder.png"])
    assert path.stat().st_size > 1000


def test_out_and_plot_differ(refused, no_fit, blobs, tmp_path):
    message = refused(blobs[0], "--out", tmp_path / "a.png", "--plot", tmp_path / "a.png")
    assert "--out and --plot both name" in message


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
@pytest.mark.parametrize("old", [True, False])
def test_no_file_is_left_half_written(run, blobs, tmp_path, monkeypatch, error, code, message, old):
    folder = tmp_path / "results"
    folder.mkdir()
    if old:
        write(folder / "labels.csv", "old")

    def write_half(file, labels):
        file.write(b"label\n0\n")
        raise error

    monkeypatch.setattr(cli, "write_labels", write_half)
    got, out, err = run(blobs[0], "--out", folder / "labels.csv")
    assert (got, out) == (code, "")
    assert re.fullmatch(rf"smallvar: .*{message}\n", err)
    assert os.listdir(folder) == ["labels.csv"] * old
    assert not old or (folder / "labels.csv").read_text() == "old"


# Pictures


def table(n, d, k):
    """Points around k centers, as the command line would hand them to the picture."""
    rng = np.random.default_rng(n)
    X = rng.uniform(0, 100, (k, d))[rng.integers(0, k, n)] + rng.normal(size=(n, d))
    return X, cli.Table(X, [f"name {i}" for i in range(d)], "t.npy")


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("suffix", ["png", "PDF", "svg"])
def test_pictures_are_written(ran, tmp_path, d, suffix):
    pytest.importorskip("matplotlib")
    np.save(tmp_path / "t.npy", table(50, d, 3)[0])
    picture = tmp_path / f"picture.{suffix}"
    assert ran(tmp_path / "t.npy", "--plot", picture)["picture"] == str(picture)
    start = {"png": b"\x89PNG\r\n", "PDF": b"%PDF-", "svg": b"<?xml"}[suffix]
    assert picture.read_bytes().startswith(start)
    assert picture.stat().st_size > 5000


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2), (500, 7), (2000, 30), (3000, 200)])
def test_every_point_and_center_is_drawn(d, n, k):
    pytest.importorskip("matplotlib")
    X, data = table(n, d, k)
    model = smallvar.DPMeans(lam=30.0).fit(X)
    figure = cli.picture(data, model)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    points, centers = (np.asarray(drawn.get_offsets()) for drawn in axes.collections)
    colors, marks = axes.collections[0].get_facecolors(), axes.texts
    assert points.shape == (n, 2)
    assert centers.shape == (model.n_clusters_, 2)
    assert len(np.unique(colors, axis=0)) == model.n_clusters_
    assert len(marks) == (model.n_clusters_ if model.n_clusters_ <= 40 else 0)
    for wanted in (f"n = {n:,}\n", f"K = {model.n_clusters_},", "lam = 30;"):
        assert wanted in axes.get_title()
    if d == 1:
        assert np.array_equal(np.sort(points[:, 0]), np.sort(X[:, 0]))
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("name 0", "points per bin")
    if d == 2:
        assert np.array_equal(np.sort(points, axis=0), np.sort(X, axis=0))
        assert np.array_equal(centers, model.cluster_centers_)
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("name 0", "name 1")
    if d == 5 and n > 2:
        centered = X - X.mean(axis=0)
        variances = np.linalg.eigvalsh(centered.T @ centered / (n - 1))[::-1]
        assert np.var(points, axis=0, ddof=1) == pytest.approx(variances[:2])
        share = variances[0] / variances.sum()
        assert axes.get_xlabel() == f"principal component 1 ({share:.0%} of the variance)"
        # a center lies in the middle of its points in the picture, too
        for center, color in zip(centers, cli.cluster_colors(model.n_clusters_), strict=True):
            own = (colors[:, :3] == color).all(axis=1)
            assert points[own].mean(axis=0) == pytest.approx(center, abs=1e-9)


def test_identical_points_can_be_drawn():
    pytest.importorskip("matplotlib")
    for d in (1, 2, 3):
        X = np.full((20, d), 1e6)
        figure = cli.picture(cli.Table(X, ["x"] * d, "t.npy"), smallvar.DPMeans().fit(X))
        figure.draw_without_rendering()
        assert "K = 1," in figure.axes[0].get_title()


def test_of_many_points_some_are_drawn():
    pytest.importorskip("matplotlib")
    X, data = table(60_000, 2, 3)
    figure = cli.picture(data, smallvar.DPMeans(lam=500.0).fit(X))
    assert len(figure.axes[0].collections[0].get_offsets()) == 50_000
    assert "n = 60,000, 50,000 of them drawn" in figure.axes[0].get_title()


def test_of_many_columns_fewer_points_are_drawn(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(cli, "VALUES_DRAWN", 4500)
    X, data = table(2000, 3, 3)
    figure = cli.picture(data, smallvar.DPMeans(lam=500.0).fit(X))
    assert "n = 2,000, 1,500 of them drawn" in figure.axes[0].get_title()


@pytest.mark.parametrize("d", [1, 2, 3])
def test_pictures_of_booleans(ran, tmp_path, d):
    pytest.importorskip("matplotlib")
    np.save(tmp_path / "t.npy", np.random.default_rng(0).random((30, d)) < 0.5)
    ran(tmp_path / "t.npy", "--plot", tmp_path / "picture.png")


def test_names_are_not_taken_for_formulas(ran, tmp_path):
    pytest.importorskip("matplotlib")
    path = write(tmp_path / "$a_{$.csv", "$x^{$,$y\n1,2\n3,4\n5,7\n")
    ran(path, "--plot", tmp_path / "picture.png")


def test_picture_of_another_kind(refused, no_fit, blobs, tmp_path):
    message = refused(blobs[0], "--plot", tmp_path / "picture.txt")
    assert "the name must end in .png, .pdf or .svg" in message
    assert not (tmp_path / "picture.txt").exists()


def test_picture_without_matplotlib(refused, no_fit, blobs, tmp_path, monkeypatch):
    for module in ("matplotlib", "matplotlib.colors", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    message = refused(blobs[0], "--plot", tmp_path / "picture.png")
    assert 'pip install "smallvar[plot]"' in message


# As a process


def test_as_a_module(blobs):
    done = python("-m", "smallvar", blobs[0], "--lam", "60")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^K +3$", done.stdout, re.M)
    done = python("-m", "smallvar", "none.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "smallvar: cannot read none.csv: No such file or directory\n"


def test_modules_are_imported_where_needed(blobs):
    program = """
import sys, smallvar
before = set(sys.modules)
from smallvar.__main__ import main
new = lambda: {name.partition(".")[0] for name in set(sys.modules) - before}
heavy = {"sklearn", "scipy", "pandas", "matplotlib"}
assert main(["--version"]) == main(["--help"]) == main(["--bad"]) - 2 == 0
assert not new() & heavy, new()
assert main(sys.argv[1:]) == 0
assert not new() & {"matplotlib"}, new()
"""
    done = python("-c", program, blobs[0])
    assert done.returncode == 0, done.stderr


@POSIX
@pytest.mark.parametrize("argv", [["--lam", "60"], ["--verbose"], ["--show-config"], ["--help"]])
def test_reader_that_goes_away(blobs, argv):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "smallvar", blobs[0], *argv],
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=120,
        )
    finally:
        os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 141 or argv == ["--help"]  # argparse itself may ignore it


def test_ctrl_c(run, blobs, tmp_path, monkeypatch):
    def fit(self, X):
        raise KeyboardInterrupt

    monkeypatch.setattr(smallvar.DPMeans, "fit", fit)
    done = run(blobs[0], "--out", tmp_path / "labels.csv")
    assert done == (130, "", "smallvar: interrupted\n")
    assert not (tmp_path / "labels.csv").exists()


@POSIX
def test_ctrl_c_stops_a_process(tmp_path):
    np.save(tmp_path / "t.npy", np.random.default_rng(0).random((100_000, 16), dtype="f4"))
    # A process started in the background may have been told to ignore the signal.
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from smallvar.__main__ import main; sys.exit(main())"
    )
    argv = [tmp_path / "t.npy", "--lam", "1", "--verbose", "--out", tmp_path / "labels.csv"]
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program, *map(str, argv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert "sweep" in process.stdout.readline()  # the fit is under way
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, "smallvar: interrupted\n")
    assert "objective  " not in out
    assert os.listdir(tmp_path) == ["t.npy"]


# A real file


def test_vehicle_silhouettes(ran, refused, tmp_path):
    path = Path(os.environ.get("SMALLVAR_DATA", ""), "uci", "vehicle.csv")
    if not path.is_file():
        pytest.skip("SMALLVAR_DATA is not a folder with uci/vehicle.csv (UCI: Statlog Vehicle)")
    report = ran(path, "--columns", "Comp:Holl.Ra", "--n-clusters", 4, "--out", tmp_path / "l.csv")
    names = np.loadtxt(path, delimiter=",", max_rows=1, dtype=str)
    X = np.loadtxt(path, delimiter=",", skiprows=1)[:, :-1]
    model = smallvar.DPMeans(n_clusters=4).fit(X)
    assert names[-1] == "class"
    assert (report["n"], report["d"]) == ("846", "18")
    assert float(report["objective"].split()[0]) == pytest.approx(model.objective_, rel=1e-9)
    assert np.array_equal(np.loadtxt(tmp_path / "l.csv", skiprows=1), model.labels_)
    assert "has no column 'none'" in refused(path, "--columns", "none")
