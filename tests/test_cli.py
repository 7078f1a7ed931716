"""The command line but for reading: options, what is fitted, printed, drawn and written."""

import contextlib
import csv
import os
import re
import signal
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import cli_tables
import numpy as np
import pandas as pd
import pytest
from cli_tables import BLOBS, IRIS, write
from sklearn.preprocessing import scale

import smallvar
from smallvar import DPMeans, MixedDPMeans, ShapeMeans
from smallvar._cli import arguments as _arguments
from smallvar._cli import cluster as _cluster
from smallvar._cli import output as _output
from smallvar._cli import report as _report

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and pipes")
OPTIONS = [
    *("n-clusters", "lam", "scale", "shapes", "kinds", "profiles", "plot", "out", "columns"),
    *("exclude", "keep", "na", "drop-missing", "skip-rows", "decimal", "encoding", "seed"),
    *("verbose", "help", "version"),
]


@pytest.fixture(autouse=True)
def folder(tables):
    """All tests run in a folder that holds the files of cli_tables."""
    return tables


@pytest.fixture
def fitted(monkeypatch):
    """Record the estimator and the data of every fit."""
    fits = []

    def record(estimator):
        fit = estimator.fit

        def recording(self, X):
            fits.append((self, X))
            return fit(self, X)

        monkeypatch.setattr(estimator, "fit", recording)

    for estimator in (DPMeans, MixedDPMeans, ShapeMeans):
        record(estimator)
    return fits


@pytest.fixture
def no_fit(monkeypatch):
    """Fail if a fit is started."""

    def fit(self, X):
        pytest.fail("the fit was started")

    for estimator in (DPMeans, MixedDPMeans, ShapeMeans):
        monkeypatch.setattr(estimator, "fit", fit)


def read_csv(path, delimiter=","):
    """Rows of cells of a csv file, the header first."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter=delimiter))


def python(*argv, **options):
    """Run Python in a process of its own."""
    return subprocess.run(
        [sys.executable, *map(str, argv)], capture_output=True, text=True, timeout=120, **options
    )


# Options


def test_help_is_complete(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    assert sorted(re.findall(r"(?m)^  (?:-h, )?--([\w-]+)", out)) == sorted(OPTIONS)
    assert all(len(line) <= 80 for line in out.splitlines())
    assert run("-h") == (0, out, "")
    assert run("--version") == (0, f"smallvar {smallvar.__version__}\n", "")


def test_modules_are_imported_where_needed():
    """--help and --version take 0.2 s of CPU, as they import nothing that takes long."""
    program = """
import sys
from smallvar.__main__ import main
new = lambda: {name.partition(".")[0] for name in sys.modules}
heavy = {"sklearn", "scipy", "pandas", "matplotlib"}
assert main(["--version"]) == main(["--help"]) == main(["--bad"]) - 2 == 0
assert not new() & heavy, new() & heavy
assert main(["blobs.csv"]) == 0
assert not new() & {"matplotlib"}, new()
"""
    done = python("-c", program)
    assert done.returncode == 0, done.stderr


# what the values of options must be, and values that are not
BAD_VALUES = {
    "--lam": ("a number >= 0", ["abc", "-1", "nan", "1_0.5", "auto"]),
    "--n-clusters": ("an integer >= 1", ["0", "2.5", "1_0", "\uff13"]),
    "--profiles": ("an integer >= 1", ["0", "1.5", "x.csv"]),
    "--seed": ("an integer >= 0", ["-1"]),
    "--skip-rows": ("lines like 3 or 1,7-9", ["0", "3-2", "a"]),
}
REFUSED = [
    ("--kinds a=normal", "--kinds has no meaning without TABLE"),
    ("--decimal ,", "--decimal has no meaning without TABLE"),
    ("--encoding ascii", "--encoding has no meaning without TABLE"),
    ("--na x", "--na has no meaning without TABLE"),
    ("--skip-rows 1", "--skip-rows has no meaning without TABLE"),
    ("none.csv", "cannot read none.csv: No such file or directory"),
    ("cluster blobs.csv", "unrecognized arguments: blobs.csv"),
    ("blobs.csv --lam 2 --n-clusters 3", "--n-clusters has no meaning with --lam"),
    ("blobs.csv --lam 2 --seed 1", "--seed has no meaning with --lam"),
    ("blobs.csv --shapes --lam 2", "--lam has no meaning with --shapes"),
    ("blobs.csv --shapes --kinds x=normal", "--kinds has no meaning with --shapes"),
    ("blobs.csv --kinds x=normal --scale", "--scale has no meaning with --kinds"),
    ("blobs.csv --kinds x=normal --drop-missing", "--drop-missing has no meaning with --kinds"),
    ("blobs.csv --kinds x", "argument --kinds: must be NAME=KIND,..., got 'x'"),
    ("blobs.csv --kinds x=normal,x=poisson", "argument --kinds: names 'x' twice"),
    ("blobs.csv another.csv", "unrecognized arguments: another.csv (see smallvar --help)\n"),
    ("blobs.csv --dask", "unrecognized arguments: --dask (see smallvar --help)\n"),
    ("blobs.csv --out", "expected one argument"),
    ("blobs.csv --out l.txt", "l.txt: the name must end in .csv, .tsv, .npy or .parquet, or be -"),
    ("blobs.csv --plot x.txt", "--plot x.txt: the name must end in .png, .pdf or .svg"),
    ("--plot blobs.csv", "--plot blobs.csv: the name must end in .png, .pdf or .svg"),
    ("blobs.csv --decimal ';'", "invalid choice: ';'"),
    ("blobs.csv --keep w", "no column 'w'"),
]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *REFUSED,
        *(
            (f"blobs.csv {option} {value}", f"argument {option}: must be {what}, got {value!r}")
            for option, (what, values) in BAD_VALUES.items()
            for value in values
        ),
    ],
)
def test_refused(refused, no_fit, call, message):
    before = sorted(os.listdir())
    assert message in refused(call)
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("blobs.csv --lam 0", "lam must be > 0"),
        (f"blobs.csv --seed {'9' * 30}", "Seed must be between 0 and 2**32 - 1"),
        ("blobs.csv --n-clusters 61", "n_clusters must be <= 60, the number of distinct rows, got"),
        ("blobs.csv --kinds x=gaussian", "must be None or one of 'normal'"),
        ("blobs.csv --kinds x=poisson", "whole numbers >= 0 for the kind 'poisson'"),
    ],
)
def test_refused_by_the_estimator(refused, call, message):
    assert message in refused(call)


def test_values_too_large_to_scale(refused):
    write("t.npy", np.array([[1e300, 1.0], [-1e300, 2.0], [1e300, 3.0]]))
    assert "--scale: the values of column 1 are too large to be squared" in refused("t.npy --scale")


# Fits


@pytest.mark.parametrize(
    ("call", "suffix", "model", "table"),
    [
        ("blobs.csv", ".csv", DPMeans(random_state=0), BLOBS),
        ("blobs.csv --seed 3", ".npy", DPMeans(random_state=3), BLOBS),
        ("blobs.csv --lam 60", ".parquet", DPMeans(lam=60.0), BLOBS),
        ("blobs.csv --n-clusters 2", ".tsv", DPMeans(n_clusters=2, random_state=0), BLOBS),
        ("blobs.csv --scale", ".csv", DPMeans(random_state=0), scale(BLOBS)),
        ("moons.npy --shapes", ".csv", ShapeMeans(random_state=0), "moons.npy"),
        (
            "iris.npy --shapes --n-clusters 3",
            ".parquet",
            ShapeMeans(n_clusters=3, random_state=0),
            IRIS,
        ),
        ("words.csv", ".parquet", MixedDPMeans(random_state=0), "words.csv"),
        ("words.csv --lam 40", ".npy", MixedDPMeans(lam=40.0), "words.csv"),
        ("words.csv --kinds count=normal,id=none", ".tsv", None, "words.csv"),
    ],
)
def test_options_reach_the_estimator_and_its_labels_the_file(ran, call, suffix, model, table):
    if model is None:
        model = MixedDPMeans(columns={"count": "normal", "id": None}, random_state=0)
    if isinstance(table, str):
        table = np.load(table) if table.endswith("npy") else pd.read_csv(table)
    expected = model.fit(table)
    report = ran(call, "--out", f"l{suffix}")
    assert (report["K"], report["labels"]) == (str(expected.n_clusters_), f"l{suffix}")
    if suffix == ".npy":
        assert np.array_equal(np.load("l.npy"), expected.labels_)
        return
    if suffix == ".parquet":
        frame = pd.read_parquet("l.parquet")
        assert frame["cluster"].dtype.kind == "i"
    else:
        frame = pd.read_csv(f"l{suffix}", sep="\t" if suffix == ".tsv" else ",")
    assert np.array_equal(frame["cluster"], expected.labels_)
    assert np.allclose(frame["probability"], expected.probabilities_, atol=5.1e-5)
    name = call.split()[0]
    if name.endswith(".csv"):  # the columns of the table come first, as they were
        assert frame.iloc[:, :-2].equals(pd.read_csv(name))


def test_columns_that_are_named_take_part(run):
    lines = ["id,a,word", *(f"{i},{i % 3 * 9 + i / 100},{'xyz'[i % 3]}" for i in range(60))]
    write("t.csv", "\n".join(lines))
    assert re.search(r"(?m)^  id +left out", run("t.csv")[1])
    assert re.search(r"(?m)^  id +normal", run("t.csv --columns id,a,word")[1])
    assert re.search(r"(?m)^  id +normal", run("t.csv --keep id")[1])
    lines = ["a,day", *(f"{i % 3 * 9},2024-01-{1 + i % 28:02}" for i in range(60))]
    write("d.csv", "\n".join(lines))
    assert run("d.csv --columns a,day")[2] == "smallvar: warning: column day is left out: dates\n"


def test_warning_of_uneven_columns(ran):
    warning = "column wide makes up 99.9% of the squared distances between rows"
    assert ran("uneven.csv", warning=warning)["K"] == "1"
    assert ran("uneven.csv --scale")["K"] == "2"


def test_warnings_become_one_line(run, monkeypatch):
    fit = DPMeans.fit

    def warning(self, X):
        warnings.warn("not\nconverged", UserWarning, stacklevel=1)
        return fit(self, X)

    monkeypatch.setattr(DPMeans, "fit", warning)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, out, err = run("blobs.csv")
    assert (code, err) == (0, "smallvar: warning: not converged\n")
    assert "sizes" in out


def test_a_penalty_that_leaves_one_cluster(run):
    """Of what the warning advises, the command names what it can do."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        _, out, err = run("blobs.csv --lam 3000")
    assert re.search(r"(?m)^K +1$", out)
    assert err.startswith("smallvar: warning: one cluster is left because lam=3000 exceeds")
    assert err.endswith(": without --lam the data choose\n")


# The report


def reports():
    """The calls in cli_reports.txt, and all that each of them prints."""
    text = Path(__file__).with_name("cli_reports.txt").read_text(encoding="utf-8")
    return [block.partition("\n")[::2] for block in text.split("$ smallvar ")[1:]]


@pytest.mark.parametrize(("call", "expected"), reports())
def test_reports(run, call, expected):
    code, out, err = run(call)
    assert (code, err) == (0, "")
    times = re.compile(r"\d+\.\d{3}(?= (?:reading|fitting))")
    assert times.sub("#", out).splitlines() == expected.strip("\n").splitlines()


def made_up(confidences, best, **more):
    """A model whose path has 1, 2, ... clusters with these confidences."""
    counts = np.arange(1, len(confidences) + 1)
    path = SimpleNamespace(
        **{"few_valued": [], "skewed": [], "best": best, "counts": counts} | more,
        confidences=np.array(confidences),
        confidence=confidences[best - 1],
        criterion=np.arange(len(confidences)),
    )
    return SimpleNamespace(n_clusters=None, lam="auto", n_clusters_=best, path_=path)


@pytest.mark.parametrize(
    ("confidences", "best", "sentence", "step"),
    [
        ([0.0, 0.9, 0.1], 2, "2 clusters, and this number is clear (confidence 0.90).", None),
        ([0.1, 0.6, 0.1], 2, "but this number is not clear (confidence 0.60).", None),
        ([0.1, 0.6, 0.3], 2, "not clear (confidence 0.60): 3 fits about as well.", "3"),
        ([0.3, 0.2, 0.4], 3, "not clear (confidence 0.40): 1, 2 fit about as well.", "2"),
        ([0.5, 0.1], 1, "1 cluster, but this number is not clear (confidence 0.50).", None),
        ([0.1] * 7, 1, "(confidence 0.10): 6 numbers from 2 to 7 fit about as well.", "2"),
        ([1.0], 1, "1 cluster: too few distinct rows to support another.", None),
        ([np.nan, np.nan], 2, "2 clusters, chosen from the data.", None),
    ],
)
def test_how_sure_the_number_is(confidences, best, sentence, step):
    model = made_up(confidences, best)
    assert _report.sentence_of(model).endswith(sentence)
    args = SimpleNamespace(shapes=False, out="l.csv", plot="p.png")
    table = SimpleNamespace(is_mixed=True)
    steps = [f"--n-clusters {step}: fits about as well"] if step else []
    assert _report.steps_of(args, table, model, None) == steps
    model.n_clusters_ += 1  # by the sweeps after the path
    after = f"after the last sweeps, of {best} that the data support"
    assert after in _report.sentence_of(model) or "too few" in sentence


def test_columns_that_may_matter():
    path = SimpleNamespace(few_valued=[0, 2], skewed=[1])
    few, skewed = _report.steps_by_columns(path, ["a", "b", "c d"])
    assert few == "--exclude 'a,c d': columns with few values may be what splits the rows"
    assert skewed.startswith("transform columns: b: skewed, or with values far away; their log")
    path = SimpleNamespace(few_valued=range(7), skewed=range(9))
    few, skewed = _report.steps_by_columns(path, [str(j) for j in range(9)])
    assert few.startswith("--exclude 0,1,2,3,4,5,6: ")
    assert skewed.startswith("transform columns: column 0, column 1, ")
    # without all columns nothing would be left
    assert _report.steps_by_columns(SimpleNamespace(few_valued=[0], skewed=[]), ["a"]) == []


def test_long_lists_are_cut():
    words = _report.sizes_in_words(np.arange(20, 0, -1))
    assert words.startswith("20, 19, 18")
    assert words.endswith("9 and 8 more of 8 to 1 rows (labels 0 to 19)")
    assert _report.sizes_in_words(np.array([4])) == "4"
    assert _report.short("a" * 40) == "a" * 27 + "..."


def test_profiles_are_in_the_units_of_the_data(run):
    # the clusters differ in scaled columns, and are described in those of the data
    lines = re.findall(r"(?m)^    \d +\d+ rows  (.*)$", run("uneven.csv --scale --profiles 1")[1])
    assert lines == ["narrow -0.0018 ± 0.0085 (97%)", "narrow 1.0006 ± 0.0070 (97%)"]
    out = run("blobs.csv --n-clusters 1 --profiles")[1]
    assert "nothing sets the cluster apart, as there is no other" in out
    assert "apart" not in run("blobs.csv --n-clusters 1")[1]


def test_boundaries_that_are_no_gaps(ran, run):
    _, out, _ = run("moons.npy --n-clusters 8")
    assert re.search(r"(?m)^boundaries +\d of \d+ between clusters are no gaps$", out)
    assert "next        --shapes: joins clusters without a gap between them\n" in out
    assert "boundaries" not in ran("blobs.csv")
    assert ran("blobs.csv --shapes")["boundaries"] == "2 between 3 pieces: 2 gap"


def test_verbose(run):
    quiet, verbose = (run(f"blobs.csv {more}")[1].splitlines() for more in ("", "--verbose"))
    assert re.match(r"coarse path: 60 rows, \d+ clusters and fewer, best \d", verbose[0])
    start = verbose.index(quiet[0])
    # after the same lines, those on the fit
    assert [line.split() for line in verbose[start : start + len(quiet)]] == [
        line.split() for line in quiet
    ]
    assert verbose[-1].startswith("seconds ")


def test_control_characters_are_escaped(run):
    write("t.csv", "a\x1b[2J,b\n1,2\n1,3\n8,9\n8,8\n")
    code, out, _ = run("t.csv --lam 9")
    assert code == 0
    assert "\x1b" not in out
    assert r"a\x1b[2J" in out


# What is written


def test_nothing_is_written_unless_asked_for(ran):
    before = sorted(os.listdir())
    ran("blobs.csv")
    assert sorted(os.listdir()) == before


def test_labels_replace_a_file_and_keep_link_and_mode(ran):
    target = Path(write("target.csv", "old"))
    target.chmod(0o640)
    Path("link.csv").symlink_to("target.csv")
    ran("blobs.csv --lam 60 --out link.csv")
    assert Path("link.csv").is_symlink()
    assert len(target.read_text().splitlines()) == 61
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        # rows as they were, quotes included; a column of the same name is told apart
        (
            'a,cluster\n"1",x\n"9",y\n',
            "--columns a",
            ["a,cluster,cluster.1,probability", '"1",x,0,1.0000', '"9",y,1,1.0000'],
        ),
        # no header
        ("1;2\n9;2\n", "", ["1;2;cluster;probability", "1;2;0;1.0000", "9;2;1;1.0000"]),
        (
            "a\tb\n1\t5\n9\t5\n",
            "--columns a",
            ["a,b,cluster,probability", "1,5,0,1.0000", "9,5,1,1.0000"],
        ),
        # rows with gaps have no cluster where they are left out; decimal commas stay
        (
            "a;b\n1,5;2\n;2\n9,5;2\n",
            "--decimal , --drop-missing",
            ["a;b;cluster;probability", "1,5;2;0;1,0000", ";2;;", "9,5;2;1;1,0000"],
        ),
    ],
)
def test_rows_stay_as_they_are(ran, text, options, expected):
    ran(write("t.csv", text), *options.split(), "--lam", "2", "--out", "l.csv")
    assert Path("l.csv").read_text().splitlines() == expected


def test_rows_left_out_of_other_formats(ran):
    write("t.csv", "a,b,word\n1,2,u\n,3,v\n9,2,w\n")
    ran("t.csv --columns a,b --drop-missing --lam 2 --out l.npy")
    assert np.load("l.npy").tolist() == [0, -1, 1]
    ran("t.csv --columns a,b --drop-missing --lam 2 --out l.parquet")
    frame = pd.read_parquet("l.parquet")
    assert list(frame.columns) == ["a", "b", "word", "cluster", "probability"]
    assert frame["cluster"].tolist() == [0, pd.NA, 1] and str(frame["cluster"].dtype) == "Int32"
    frame[["a", "b", "word"]].to_parquet("t.parquet")
    write("c.csv", "a;b;word\n1,5;2.000,5;u\n9,5;3;w\n")
    ran("c.csv --lam 2 --out l.parquet", warning="',' is the decimal sign")
    assert pd.read_parquet("l.parquet")[["a", "b"]].to_numpy().tolist() == [[1.5, 2000.5], [9.5, 3]]
    for suffix in (".csv", ".tsv"):
        ran(f"t.parquet --columns a,b --drop-missing --lam 2 --out m{suffix}")
        rows = read_csv(f"m{suffix}", "," if suffix == ".csv" else "\t")
        assert [row[2:4] for row in rows] == [
            ["word", "cluster"],
            ["u", "0"],
            ["v", ""],
            ["w", "1"],
        ]


def test_results_of_many_rows_and_columns(ran):
    X = np.random.default_rng(0).integers(0, 5, (150_001, 1)).astype("f4") * 10
    ran("--lam 1 --out l.csv", write("t.npy", X))
    labels = [int(row[0]) for row in read_csv("l.csv")[1:]]
    assert np.array_equal(labels, DPMeans(lam=1.0).fit(X).labels_)
    wide = np.random.default_rng(0).normal(size=(20, 3000)).round(3)
    pd.DataFrame(wide, columns=[f"c{j}" for j in range(3000)]).to_csv("w.csv", index=False)
    ran("w.csv --n-clusters 2 --out v.csv")
    assert [len(row) for row in read_csv("v.csv")] == [3002] * 21


def test_many_clusters_have_no_probability(run):
    code, _, err = run("--lam 1e-9 --out l.csv", write("t.npy", np.arange(1200.0)[:, np.newaxis]))
    assert (code, read_csv("l.csv")[0]) == (0, ["cluster"])
    assert "--out has no column probability: there are too many clusters, 1,200" in err


@pytest.mark.parametrize("call", ["blobs.csv --lam 60", "words.csv", "--lam 1e6"])
def test_labels_on_standard_output(run, call):
    _, report, _ = run(call, "--out", "expected.csv")
    code, out, err = run(call, "--out", "-")
    assert (code, out) == (0, Path("expected.csv").read_text())
    assert re.search(r"^labels +standard output$", err, re.M)
    facts = r"^(?!seconds|labels).*"
    assert re.findall(facts, err, re.M) == re.findall(facts, report, re.M)
    code, out, err = run("blobs.csv --lam 60")  # the next report is where it was
    assert "sizes" in out and err == ""


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            "--out l.parquet",
            "--out l.parquet needs pandas and pyarrow: pip install 'smallvar[parqu",
        ),
        ("--plot p.png", "--plot needs matplotlib: pip install matplotlib"),
    ],
)
def test_packages_that_are_missing(refused, no_fit, monkeypatch, call, words):
    monkeypatch.setattr(_arguments, "is_installed", lambda *packages: False)
    assert words in refused(f"blobs.csv {call}")


@pytest.mark.parametrize(("option", "target"), [("--out", "t.csv"), ("--plot", "t.png")])
def test_targets_are_tried_before_the_fit(refused, no_fit, option, target):
    before = sorted(os.listdir())
    os.mkdir(f"folder-{target}")
    os.symlink("blobs.csv", f"data-{target}")
    os.symlink(os.devnull, f"null-{target}")
    for name, words in [
        (f"none/{target}", "there is no folder none"),
        (f"folder-{target}", "this is not a file that can be replaced"),
        (f"null-{target}", "this is not a file that can be replaced"),
        (f"data-{target}", "this would overwrite the data"),
        ("x" * 300 + target, "file name too long"),
    ]:
        message = refused("blobs.csv", option, name)
        assert message.lower() == f"smallvar: {option} {name}: {words}\n".lower()
    assert len(os.listdir()) == len(before) + 3
    assert Path("blobs.csv").read_bytes() == cli_tables.FILES["blobs.csv"]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
@pytest.mark.parametrize("old", [True, False])
def test_no_file_is_left_half_written(run, monkeypatch, error, code, message, old):
    os.mkdir("results")
    if old:
        write("results/t.csv", "old")

    def write_half(file, *args):
        file.write(b"cluster\n0\n")
        raise error

    monkeypatch.setattr(_output, "write_text", write_half)
    got, out, err = run("blobs.csv --out results/t.csv")
    assert (got, out) == (code, "")
    assert re.fullmatch(rf"smallvar: .*{message}\n", err)
    assert os.listdir("results") == ["t.csv"] * old
    assert not old or Path("results/t.csv").read_text() == "old"


# Standard input


@pytest.fixture
def stdin(run, monkeypatch):
    """Put bytes into standard input, as a pipe or, where asked for, as a file."""
    opened = []

    def fill(content, as_file=False):
        if as_file:
            Path("redirected").write_bytes(content)
            reading = os.open("redirected", os.O_RDONLY)
        else:
            reading, writing = os.pipe()
            os.write(writing, content)
            os.close(writing)
        opened.append(os.fdopen(reading, encoding="utf-8"))
        monkeypatch.setattr(sys, "stdin", opened[-1])

    yield fill
    for file in opened:
        file.close()


@POSIX
@pytest.mark.parametrize("call", ["--lam 60 -", "--lam 60"])
@pytest.mark.parametrize("as_file", [True, False])
def test_text_from_standard_input(ran, stdin, call, as_file):
    stdin(cli_tables.FILES["blobs.csv"], as_file)
    report = ran(call)
    assert report["data"] == "standard input, 3 columns: x, y, z"
    assert report["n"] == "60"


@POSIX
def test_redirected_data_are_not_overwritten(refused, no_fit, stdin):
    stdin(b"a,b\n1,2\n", as_file=True)
    os.symlink("redirected", "out.csv")
    assert "would overwrite the data" in refused("--out out.csv")


@POSIX
def test_without_data_in_standard_input_there_are_wines(ran, stdin, monkeypatch):
    assert ran("--lam 1e6")["n"] == "178"  # from the null device
    for as_file in (False, True):
        stdin(b"", as_file)
        assert ran("--lam 1e6")["n"] == "178"
    monkeypatch.setattr(_arguments, "PIPE_PATIENCE", 0.01)
    reading, writing = os.pipe()  # in which nothing arrives, and which nobody closes
    with open(reading) as silent, open(writing, "w"):
        monkeypatch.setattr(sys, "stdin", silent)
        warning = "nothing came through standard input for 0.01 s, so it is not read; give - as"
        assert ran("--lam 1e6", warning=warning)["n"] == "178"
    monkeypatch.setattr(sys, "stdin", None)
    assert ran("--lam 1e6")["n"] == "178"


def test_pipes_between_processes():
    with open("blobs.csv", "rb") as file:
        command = [sys.executable, "-m", "smallvar", "--out", "-"]
        done = subprocess.run(command, stdin=file, capture_output=True, timeout=120)
    assert done.returncode == 0
    header, *lines = done.stdout.decode().splitlines()
    assert header == "x,y,z,cluster,probability"
    labels = [int(line.split(",")[3]) for line in lines]
    assert np.array_equal(labels, DPMeans(random_state=0).fit(BLOBS).labels_)
    assert re.search(r"^data +standard input, 3 columns: x, y, z$", done.stderr.decode(), re.M)


# Pictures


@pytest.mark.parametrize("suffix", ["png", "PDF", "svg"])
@pytest.mark.parametrize(
    "call",
    [
        *("blobs.csv --columns x", "blobs.csv --columns x,y", "blobs.csv --scale", "--lam 1e6"),
        *("words.csv", "blobs.csv --kinds x=normal", "moons.npy --shapes --scale"),
        *("blobs.csv --profiles", "uneven.csv --scale --profiles 2", "equal.npy"),
    ],
)
def test_pictures_are_written(ran, call, suffix):
    pytest.importorskip("matplotlib")
    assert ran(call, "--plot", f"picture.{suffix}")["picture"] == f"picture.{suffix}"
    picture = Path(f"picture.{suffix}").read_bytes()
    assert picture.startswith({"png": b"\x89PNG\r\n", "PDF": b"%PDF-", "svg": b"<?xml"}[suffix])
    assert len(picture) > 5000


ROWS = "300 rows, clusters of 90 to 115 rows"


@pytest.mark.parametrize(
    ("d", "options", "title"),
    [
        (1, "--lam 500", f"3 clusters\n{ROWS}\n$t_{{.npy"),
        (2, "", f"3 clusters, clear (0.98)\n{ROWS}\n$t_{{.npy"),
        (3, "--scale", f"3 clusters, clear (0.98)\n{ROWS}\n$t_{{.npy, columns scaled"),
        (3, "--profiles", "3 clusters, clear (0.98): red above all rows, blue below\n$t_{.npy"),
    ],
)
def test_what_pictures_show(ran, monkeypatch, d, options, title):
    pytest.importorskip("matplotlib")
    figures = []
    monkeypatch.setattr(_cluster, "save", lambda path, figure: figures.append(figure))
    rng = np.random.default_rng(0)
    centers = np.array([[0, 50, 90], [90, 0, 50], [50, 90, 0]])[:, :d]
    X = centers[rng.integers(3, size=300)] + rng.normal(size=(300, d))
    ran(write("$t_{.npy", X), *options.split(), "--plot", "p.png")
    figures[0].draw_without_rendering()
    (axes,) = figures[0].axes
    assert axes.get_title() == title
    if options != "--profiles":
        points, marks = (np.asarray(marks.get_offsets()) for marks in axes.collections)
        assert (len(points), len(marks)) == (300, 3)
        assert options == "--scale" or np.isin(points[:, 0], X[:, 0]).all()


# As a process


FULL = "smallvar: cannot write standard output: No space left on device\n"


@POSIX
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("--lam 60 > /dev/full", 1, FULL),
        ("--out - > /dev/full", 1, FULL),
        ("--help > /dev/full", 1, FULL),
        ("--lam 60 >&-", 0, ""),
        ("--lam 60 --out - >&-", 2, "smallvar: --out -: standard output is closed\n"),
    ],
)
def test_output_that_cannot_be_written(options, code, words, unbuffered):
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m smallvar blobs.csv {options}"],
        stderr=subprocess.PIPE,
        timeout=120,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    )
    assert (done.returncode, done.stderr.decode()) == (code, words)


@pytest.mark.long
@POSIX
@pytest.mark.parametrize("options", [["--lam", "60"], ["--help"]])
def test_reader_that_goes_away(options):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed:
        command = [sys.executable, "-m", "smallvar", "blobs.csv", *options]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, timeout=120)
    assert (done.returncode, done.stderr) == (141, b"")


def test_ctrl_c(run, monkeypatch):
    def fit(self, X):
        raise KeyboardInterrupt

    monkeypatch.setattr(DPMeans, "fit", fit)
    assert run("blobs.csv --out labels.csv") == (130, "", "smallvar: interrupted\n")
    assert not os.path.exists("labels.csv")


@pytest.mark.long
@POSIX
@pytest.mark.parametrize(
    ("number", "code", "words"),
    [(signal.SIGINT, 130, "smallvar: interrupted\n"), (signal.SIGTERM, 143, "")],
)
def test_signals_stop_a_fit(number, code, words):
    write("t.npy", np.random.default_rng(0).random((100_000, 16), dtype="f4"))
    # A process started in the background may have been told to ignore the signal.
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from smallvar.__main__ import main; sys.exit(main())"
    )
    before = os.listdir()
    argv = ["t.npy", "--lam", "1", "--verbose", "--out", "l.csv"]
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert "sweep" in process.stdout.readline()  # the fit is under way
            process.send_signal(number)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (process.returncode, err) == (code, words)
    assert "objective  " not in out
    assert os.listdir() == before


@POSIX
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_while_a_file_is_written(run, monkeypatch, number):
    """The draft of the file is deleted, and the old file stays."""
    write("l.csv", "old")
    before = sorted(os.listdir())

    def write_half(file, *args):
        file.write(b"cluster\n0\n")
        assert len(os.listdir()) == len(before) + 1
        os.kill(os.getpid(), number)
        time.sleep(9)

    monkeypatch.setattr(_output, "write_text", write_half)
    assert run("blobs.csv --out l.csv") == (128 + number, "", "")
    assert sorted(os.listdir()) == before
    assert Path("l.csv").read_text() == "old"
    assert signal.getsignal(number) == signal.SIG_DFL


# Progress


def on_a_terminal(program, *argv):
    """Run a program whose standard error is a terminal; returns both outputs."""
    pty = pytest.importorskip("pty")
    program = f"import sys\nfrom smallvar._cli import main\n{program}\nsys.exit(main.main())"
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program, *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
    )
    os.close(slave)
    err = b""
    try:
        # the error comes where the other end is closed
        with contextlib.suppress(OSError):
            while some := os.read(master, 4096):
                err += some
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        os.close(master)
    assert process.returncode == 0, err
    return out.decode(), err.decode()


SLOW_FIT = """
import time, warnings
import smallvar
from smallvar._cli import progress
progress.LINE_PATIENCE, progress.LINE_TICK = 0.05, 0.02
class Slow(smallvar.DPMeans):
    def fit(self, X):
        def wait(event):
            time.sleep(0.7)
            warnings.warn("strange")
        with smallvar.progress_callback(wait):
            return super().fit(X)
smallvar.DPMeans = Slow
"""


@pytest.mark.long
@POSIX
@pytest.mark.parametrize(
    ("options", "notes"),
    [
        (["--lam", "60"], ["sweep 2: 3 clusters, .*"]),
        ([], ["path: 60 rows, .*"]),
        (["--lam", "60", "--verbose"], []),
    ],
)
def test_progress_of_a_fit(options, notes):
    out, err = on_a_terminal(SLOW_FIT, "blobs.csv", *options)
    states = [state.rstrip() for state in err.split("\r")]
    for words in notes:
        assert any(re.fullmatch(rf"fitting: \d+ s, {words}", state) for state in states)
    assert "smallvar: warning: strange" in states  # not behind the line, but in place of it
    assert ("sweep 1: 3 clusters, " in out) == ("--verbose" in options)
    assert ("fitting" in err) == bool(notes)
    assert re.search(r"^K +3", out, re.M)
