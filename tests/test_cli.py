"""The command line: what it reads, refuses, prints and writes."""

import contextlib
import csv
import gzip
import os
import re
import signal
import stat
import subprocess
import sys
import warnings
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import cli_tables
import numpy as np
import pytest
from cli_tables import BLOBS, IRIS, STREAM, SUMS, UNEVEN, as_npy
from sklearn.datasets import load_digits, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler, scale

import smallvar
from smallvar import BPMeans, DPMeans, DynamicMeans, KFeatures
from smallvar._cli import answer as _answer
from smallvar._cli import arguments as _arguments
from smallvar._cli import batches as _batches
from smallvar._cli import choice as _choice
from smallvar._cli import columns as _columns
from smallvar._cli import data as _data
from smallvar._cli import features as _features
from smallvar._cli import others as _others
from smallvar._cli import output as _output
from smallvar._cli import picture as _picture
from smallvar._cli import progress as _progress
from smallvar._cli import shapes as _shapes
from smallvar._cli import table as _table
from smallvar._cli import table_out as _table_out
from smallvar._cli.main import COMMANDS, main
from smallvar._core.warning_fields import warn_in_fields
from smallvar._features.feature_path import FeaturePath
from smallvar._plot import base as _base
from smallvar._selection.envelope import envelope

with contextlib.suppress(ImportError):
    import matplotlib.pyplot  # noqa: F401  what it warns of on import is not the command line's

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and pipes")
ESTIMATORS = [DPMeans, BPMeans, KFeatures, DynamicMeans, smallvar.MixedDPMeans, smallvar.ShapeMeans]
AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


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

        def recording(self, X, *args, **kwargs):
            fits.append((self, X))
            return fit(self, X, *args, **kwargs)

        monkeypatch.setattr(estimator, "fit", recording)

    for estimator in ESTIMATORS:
        record(estimator)
    return fits


@pytest.fixture
def no_fit(monkeypatch):
    """Fail if a fit is started."""

    def fit(self, X, *args, **kwargs):
        pytest.fail("the fit was started")

    for estimator in ESTIMATORS:
        monkeypatch.setattr(estimator, "fit", fit)


def write(name, content):
    """Write text, bytes or an array to a file; text is compressed for .gz."""
    if isinstance(content, np.ndarray):
        content = as_npy(content)
    elif isinstance(content, str):
        content = content.encode()
        if name.lower().endswith(".gz"):
            content = gzip.compress(content)
    Path(name).write_bytes(content)
    return name


def as_parquet(X, names=None):
    """A .parquet file of an array, or of columns by their names."""
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(X, columns=names).rename(columns=str).to_parquet()


def read_out(path):
    """The titles and values of the results in a file of --out; -1 for missing ones."""
    if path.lower().endswith(".npy"):
        return None, np.load(path)
    if path.endswith(".parquet"):
        frame = pytest.importorskip("pandas").read_parquet(path)
        titles, rows = list(frame.columns), frame.to_numpy(dtype=object, na_value="").tolist()
    else:
        titles, *rows = read_csv(path, ";" if ";" in Path(path).read_text() else ",")
    at = [j for j, title in enumerate(titles) if re.fullmatch(r"cluster|feature_\d+", title)]
    titles = [titles[j] for j in at]
    rows = np.array([[-1 if row[j] == "" else int(row[j]) for j in at] for row in rows])
    return titles, rows[:, 0] if titles == ["cluster"] else rows


def read_csv(path, delimiter=","):
    """Rows of cells of a csv file, the header first."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter=delimiter))


def python(*argv, **options):
    """Run Python in a process of its own."""
    return subprocess.run(
        [sys.executable, *map(str, argv)], capture_output=True, text=True, timeout=120, **options
    )


# What is printed


def reports():
    """The calls in cli_reports.txt, and all that each of them prints."""
    text = Path(__file__).with_name("cli_reports.txt").read_text(encoding="utf-8")
    return [block.partition("\n")[::2] for block in text.split("$ smallvar ")[1:]]


@pytest.mark.parametrize(("call", "expected"), reports())
@pytest.mark.filterwarnings("always:the number of clusters")
def test_reports(run, call, expected):
    code, out, err = run(call)
    assert code == 0
    printed = re.sub(r"\d+\.\d{3} (?=reading|looking|fitting|labeling)", "# ", out) + err
    assert printed.rstrip("\n") == expected.rstrip("\n")


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (
            "blobs.csv --guess 3 --verbose",
            "lam 101.31112 (farthest-first, for a guess of 3 clusters)",
        ),
        ("blobs.csv --n-clusters 7", "7 clusters, as asked for."),
        ("blobs.csv --n-clusters 7", "K 7"),
        ("blobs.csv", "3 clusters, and this number is clear (confidence 0.98)."),
        ("blobs.csv", "confidence 0.98"),
        (
            "blobs.csv --verbose",
            "lam 156.11719 (a price for each cluster, not a distance; "
            "K = 3 is best from 20.0668 to 1214.57)",
        ),
        (
            "--path 2 iris.npy",
            "2 clusters, and this number is clear (confidence 0.95).",
        ),
        (
            "blobs.csv --max-clusters 1",
            "1 cluster, of 1 at most: 3 would fit better: no other was allowed.",
        ),
        ("blobs.csv --path", "* chosen: the lowest criterion"),
        ("blobs.csv --path 1000", "15 33.286445 +324.2 15 (path ends) 3.4331885"),
        ("equal.npy --path", "1 0 +0.0 1 0 inf *"),
        ("blobs.csv --path", "9 65.189296 +182.7 8 - -"),
        ("uneven.csv --scale --path 2", "1 80 +208.0 2 41.095738 inf"),
        ("equal.npy --scale", "1 cluster: too few distinct rows to support another."),
        (
            "uneven.csv --columns wide,narrow --scale",
            "scaled each column to mean 0 and standard deviation 1; lam is in these units",
        ),
        (
            "--lam 1e6 --columns alcohol:ash",
            "Known: 3 cultivars. Found: 1 cluster, with 71 of 178 wines (40%) in the cluster of "
            "their cultivar.",
        ),
        ("--exclude alcohol:hue --lam 1e6", "d 2"),
        ("features sums.csv --verbose", "lam 15.08286 (chosen from the data)"),
        (
            "features sums.csv --n-components 2",
            "2 features, as asked for, explaining 90.0% of the sum of squares.",
        ),
        ("features sums.csv --algorithm stepwise --verbose", "starts at most 10 for each K"),
        ("features sums.csv --lam 3 --starts 5 --swaps 1 --verbose", "starts 5, each with 1 swap"),
        ("features zeros.npy", "rows 3 with 0 features"),
        ("features zeros.npy", "explained 100.0% of ||X||^2"),
        ("features zeros.npy --path 2", "widest none"),
        ("features few.csv --lam 1", "rows 1 with 0, 2 with 1 feature"),
        ("features exact.npy --path 4", "2 0 100.0% 0 2.25 *"),
        ("features exact.npy --path 4", "3 0 100.0% - -"),
        ("features exact.npy --path 4", "widest K = 2, without error, for lam up to 2.25"),
        (
            "track stream.csv --time t --lam 3 --t-q inf --k-tau 2 --verbose",
            "t_q inf (given; q = 0)",
        ),
        (
            "track stream.csv --time t --lam 3 --t-q inf --k-tau 2 --verbose",
            "k_tau 2 (given; tau = 1)",
        ),
        ("track stream.csv --time t --lam 3 --q 0.5 --tau 0 --starts 5 --verbose", "q 0.5 (given)"),
        ("track stream.csv --time t --lam 3 --q 0.5 --tau 0 --starts 5 --verbose", "tau 0 (given)"),
        (
            "track stream.csv --time t --lam 3 --q 0.5 --tau 0 --starts 5 --verbose",
            "starts 5 for each step",
        ),
        (
            "track pairs.npy --time 1 --verbose",
            "lam 4 (farthest-first, median over the steps, for a guess of 2 clusters)",
        ),
        (
            "track single.npy --time 1 --verbose",
            "lam 1 (farthest-first, median over the steps, for a guess of 1 cluster)",
        ),
        ("track digits.npy --time 1 --lam 1", f"steps 3 (column 1 from {2**60} to {2**60 + 2})"),
        (
            "track digits.csv --time t --lam 1 --drop-missing",
            f"steps 2 (t from {2**53} to {2**53 + 2})",
        ),
        ("track commas.csv --time t --lam 1 --decimal ,", "steps 2 (t from 0.25 to 0.5)"),
        (
            "track stream.csv --time t --lam 1e-4",
            "smallvar: warning: 247 clusters for 250 rows, so most are seen once or twice: lam is "
            "too small; give a larger --lam or a smaller --guess, or where clusters move fast a "
            "larger --k-tau",
        ),
        ("track", "clusters 9 ever seen, 8 alive at the end"),
        ("track", "events 9 births, 1 death, 1 revival"),
        ("track", "steps 60 (time from 0 to 59)"),
        ("track", "No DATA given, so these are groups that move, generated by this program."),
        ("track --columns y --seed 5", "data moving groups, 1 column: y"),
        ("track --exclude x", "data moving groups, 1 column: y"),
        ("words.csv --n-clusters 2", "2 clusters, as asked for."),
        (
            "words.csv --lam 30 --algorithm delayed",
            "1 cluster, by the penalty lam = 30 (given; in nats, not squared units).",
        ),
    ],
)
def test_lines_of_reports(run, call, line):
    code, out, err = run(call)
    assert code == 0
    assert line in [" ".join(printed.split()) for printed in (out + err).splitlines()]


def test_long_lists_are_cut(ran):
    X = np.repeat(np.arange(20.0), [5, *range(2, 21)]).reshape(-1, 1) * 10
    sizes = ran(write("many.npy", X), "--lam", "0.5", "--out", "l.npy")["sizes"]
    expected = np.bincount(np.load("l.npy"))
    assert (np.diff(expected) > 0).any() and (np.diff(expected) < 0).any()
    first, rest = ", ".join(map(str, expected[:12])), expected[12:]
    expected = f"{first} and 8 more of {rest.max()} to {rest.min()} points (labels 0 to 19)"
    assert sizes == expected
    X = np.repeat(np.eye(15), np.arange(15, 0, -1), axis=0)
    report = ran("features --n-components 15 --out z.npy", write("many.npy", X))
    users = np.load("z.npy").sum(axis=0)
    first, rest = ", ".join(map(str, users[:12])), users[12:]
    assert report["users"] == f"{first} and 3 more of {max(rest)} to {min(rest)} rows"


X_OF_STREAM, TIMES_OF_STREAM = STREAM[:, [0, 2]], STREAM[:, 1]
ROWS = {"blobs.csv": BLOBS, "sums.csv": SUMS, "stream.csv": X_OF_STREAM}


@pytest.mark.parametrize(
    ("call", "model"),
    [
        ("blobs.csv", DPMeans(random_state=0)),
        ("blobs.csv --lam auto --seed 3", DPMeans(random_state=3)),
        ("blobs.csv --lam 60", DPMeans(lam=60.0)),
        ("blobs.csv --lam 60 --seed 0", DPMeans(lam=60.0, random_state=0, shuffle=True)),
        ("blobs.csv --n-clusters 1", DPMeans(n_clusters=1, random_state=0)),
        ("blobs.csv --n-clusters 7", DPMeans(n_clusters=7, random_state=0)),
        ("blobs.csv --guess 2", DPMeans(lam="farthest-first", guess=2)),
        ("blobs.csv --max-clusters 2", DPMeans(max_clusters=2, random_state=0)),
        ("blobs.csv --min-cluster-size 9", DPMeans(min_cluster_size=9, random_state=0)),
        ("blobs.csv --algorithm merge", DPMeans(algorithm="merge", random_state=0)),
        (
            "blobs.csv --guess 2 --algorithm merge",
            DPMeans(lam="farthest-first", guess=2, algorithm="merge", random_state=0),
        ),
        (
            "blobs.csv --lam 60 --algorithm merge --seed 5",
            DPMeans(lam=60.0, algorithm="merge", random_state=5),
        ),
        (
            "blobs.csv --lam 3 --algorithm collapsed --seed 7",
            DPMeans(lam=3.0, algorithm="collapsed", random_state=7, shuffle=True),
        ),
        ("blobs.csv --path", DPMeans(random_state=0)),
        ("blobs.csv --path 2 --threads 2", DPMeans(max_clusters=2, n_threads=2, random_state=0)),
        ("", DPMeans(random_state=0)),
        ("features sums.csv", BPMeans(random_state=0)),
        (
            "features sums.csv --lam 3 --algorithm stepwise --max-features 4 --seed 7",
            BPMeans(lam=3.0, algorithm="stepwise", max_features=4, random_state=7),
        ),
        (
            "features sums.csv --lam 3 --algorithm collapsed --assign coordinate --threads 2",
            BPMeans(
                lam=3.0, algorithm="collapsed", assign="coordinate", n_threads=2, random_state=0
            ),
        ),
        (
            "features sums.csv --algorithm collapsed --max-features 12 --assign exact --swaps 1",
            BPMeans(
                algorithm="collapsed", max_features=12, assign="exact", n_swaps=1, random_state=0
            ),
        ),
        (
            "features sums.csv --n-components 2 --assign exact --starts 5",
            KFeatures(2, assign="exact", n_init=5, random_state=0),
        ),
        ("features --lam 1e5 --starts 1", BPMeans(lam=1e5, n_init=1, random_state=0)),
        ("track stream.csv --time t --lam 4", DynamicMeans(lam=4.0, random_state=0)),
        (
            "track stream.csv --time t --lam 3 --t-q inf --k-tau 2 --threads 2 --seed 7",
            DynamicMeans(lam=3.0, t_q=np.inf, k_tau=2.0, n_threads=2, random_state=7),
        ),
        (
            "track stream.csv --time t --lam 3 --q 0.5 --tau 0 --starts 5",
            DynamicMeans(lam=3.0, q=0.5, tau=0.0, n_init=5, random_state=0),
        ),
    ],
)
def test_options_reach_the_estimator_and_its_labels_the_file(ran, fitted, call, model):
    report = ran(call, "--out", "out.csv")
    used, rows = fitted[0]
    assert used.get_params() == model.get_params()
    stand_in = load_digits().data if "features" in call else scale(load_wine().data)
    X = next((X for name, X in ROWS.items() if name in call), stand_in)
    np.testing.assert_allclose(rows, X, atol=1e-12)
    moves = isinstance(model, DynamicMeans)
    model.fit(rows, **({"times": TIMES_OF_STREAM} if moves else {}))
    titles, labels = read_out("out.csv")
    if "features" in call:
        assert np.array_equal(labels, model.assignments_)
        assert titles == [f"feature_{i}" for i in range(model.n_components_)]
    else:
        assert np.array_equal(labels, model.labels_)
        assert titles == ["cluster"]
    report = ran(call, "--verbose")
    assert ("objective" in report) == ("--path" not in call and "--n-components" not in call)
    if "objective" in report:
        objective = model.step_objectives_.sum() if moves else model.objective_
        assert float(report["objective"].split()[0]) == pytest.approx(objective, rel=1e-9)
        assert float(report["lam"].split()[0]) == pytest.approx(model.lam_, rel=1e-7)


def test_centers_are_written_to_the_last_bit(ran):
    ran("features sums.csv --lam 20 --components a.csv")
    header, *rows = read_csv("a.csv")
    assert header == list("abcdef")
    components = BPMeans(lam=20.0, random_state=0).fit(SUMS).components_
    assert np.array_equal(np.array(rows, dtype=float), components)
    ran("track stream.csv --time t --lam 4 --tracks tracks.csv")
    model = DynamicMeans(lam=4.0, random_state=0).fit(X_OF_STREAM, times=TIMES_OF_STREAM)
    check_tracks("tracks.csv", model, ["x", "y"])
    assert Path("tracks.csv").read_text().splitlines()[4].startswith("100.5,0,")  # as in the file
    write("t.csv", '"größe, in ""cm""";y\n1;2\n3;4\n')
    ran("features t.csv --n-components 1 --components a.csv")
    assert read_csv("a.csv")[0] == ['größe, in "cm"', "y"]


def check_tracks(path, model, titles):
    """Compare the file of tracks with those of the estimator, row by row."""
    header, *rows = read_csv(path)
    assert header == ["time", "cluster", *titles]
    seen = [
        (int(row[0]), cluster, row[1:]) for cluster, track in model.tracks_.items() for row in track
    ]
    seen.sort(key=lambda row: row[:2])
    assert len(rows) == len(seen)
    for row, (step, cluster, center) in zip(rows, seen, strict=True):
        assert int(row[1]) == cluster
        assert row[0] == _table.moment(model.times_[step])
        assert np.array_equal(np.array(row[2:], dtype=float), center)  # to the last bit


def test_verbose(run):
    for call, line in [
        ("blobs.csv --path --verbose", r"coarse path: 60 rows, \d+ clusters and fewer, best \d"),
        ("features sums.csv --lam 20 --starts 2 --verbose", ".*objective"),
        ("features sums.csv --n-components 2 --starts 1 --verbose", ".*objective"),
        ("track stream.csv --time t --lam 4 --verbose", "step 1: "),
    ]:
        quiet = run(call.removesuffix("--verbose"))[1].splitlines()
        verbose = run(call)[1].splitlines()
        assert re.match(line, verbose[0])
        assert len(verbose) >= len(quiet) + (20 if "track" in call else 2)
        # after the same lines, those on the fit
        start = verbose.index(quiet[0])
        assert [line.split() for line in verbose[start : start + len(quiet)]] == [
            line.split() for line in quiet
        ]
        assert verbose[-1].startswith("seconds ")


def test_wines_are_paired_with_their_cultivars():
    cultivars = np.repeat([0, 1, 2], [5, 4, 3])
    labels = np.array([3, 3, 3, 0, 0, 3, 3, 3, 3, 1, 1, 2])
    # cluster 3 has 3 and 4 of the first two cultivars: it is paired with the second
    words = _data.wines_in_words(cultivars, labels)
    assert words.startswith("Known: 3 cultivars. Found: 4 clusters, with 8 of 12 wines (67%) in")


def test_warnings_become_one_line(run, monkeypatch):
    fit = DPMeans.fit

    def warning(self, X):
        warnings.warn("not\nconverged", UserWarning, stacklevel=1)
        return fit(self, X)

    monkeypatch.setattr(DPMeans, "fit", warning)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, out, err = run("blobs.csv")
    assert code == 0
    assert "sizes" in out or "clusters" in out
    assert err == "smallvar: warning: not converged\n"


@pytest.mark.parametrize(
    ("field", "in_python", "in_options"),
    [
        (("n_clusters", None), "n_clusters", "--n-clusters"),
        (("path_.labels", 2), "path_.labels(2)", "--n-clusters 2"),
        (("algorithm", "merge"), "algorithm='merge'", "--algorithm merge"),
        (("columns", [1]), "1", "y"),
        (("columns", range(6)), "0, 1, 2, 3, 4, ...", "x, y, z, a, b, ..."),
        (("smallvar.ShapeMeans", None), "smallvar.ShapeMeans", "--shapes"),
    ],
)
def test_warnings_name_options(field, in_python, in_options):
    with pytest.warns(UserWarning, match="see") as caught:
        warn_in_fields(UserWarning, "see {it}", it=field)
    (warning,) = [entry.message for entry in caught]
    assert str(warning) == f"see {in_python}"
    assert _output.in_options(warning, "xyzabc") == f"see {in_options}"
    assert _output.in_options(UserWarning("{it}, n_clusters"), "xyz") == "{it}, n_clusters"


@pytest.mark.filterwarnings("ignore::smallvar.ScaleWarning")
@pytest.mark.parametrize(
    ("header", "named"), [("alcohol,malic,ash,proline\n", "malic"), ("", "column 2")]
)
@pytest.mark.parametrize("options", ["", "--path --out l.csv"])
def test_the_next_steps_name_the_columns_that_are_skewed(run, header, named, options):
    X = load_wine().data[:, [0, 1, 2, 12]]
    with pytest.warns(smallvar.UnclearNumberWarning, match=r"columns are skewed \(1\)"):
        DPMeans(random_state=0).fit(X)
    write("t.csv", header.encode() + cli_tables.as_csv(X))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, out, err = run(f"t.csv {options}")
    # the report says it, so that it is no warning
    assert (code, err.count("is not clear")) == (0, 0)
    assert out.count("this number is not clear") == 1
    steps = re.findall("^next +(.*)$", out, re.M)
    words = f"transform columns: {named} is skewed or with values far away; their logarithms may"
    assert any(step.startswith(words) for step in steps)


# The report: the answer first, and what to do next


@pytest.mark.parametrize(
    "call",
    [
        *("blobs.csv", "moons.npy", "words.csv --path", "blobs.csv --shapes", "blobs.csv --long"),
        *("features sums.csv", "features sums.csv --path", "batches.npy --batch-size 1000"),
        "track stream.csv --time t",
    ],
)
def test_the_report_begins_with_the_answer(run, call):
    if "batches" in call:
        write("batches.npy", cli_tables.sorted_blobs()[0])
    sentence, blank, first, *lines = run(call)[1].splitlines()
    assert re.match(r"\d+ (cluster|feature)s?\b.*\.$", sentence) and blank == ""
    assert re.match(rf"(K|clusters) +{sentence.split()[0]}\b", first)
    names = [line.split("  ")[0] for line in [first, *lines] if re.match(r"\w+  ", line)]
    found = [names.index(name) for name in ("next", "data")]
    assert found == sorted(found) and min(found) > 0
    told = ("lam", "objective", "SSE", "sweeps", "seconds")
    assert not any(name in told for name in names)
    verbose = run(call, "--verbose")[1]
    assert re.search("^seconds ", verbose, re.M)


class Found:
    """An estimator that finds ``k`` clusters with a confidence."""

    def __init__(self, k, confidence):
        self.n_clusters_, self.confidence_, self.rows = k, confidence, None

    def set_params(self, n_clusters):
        assert n_clusters is None
        return self

    def fit(self, X):
        self.rows, self.labels_ = X, np.arange(len(X)) % self.n_clusters_


@pytest.mark.parametrize(
    ("shapes", "long", "steps", "tried"),
    [
        ((2, 0.9), (7, 0.1), ["--shapes: 2 clusters of any shape, clearer (confidence 0.90)"], "7"),
        ((2, 0.6), (4, 0.7), ["--long: 4", "--shapes: 2"], None),
        ((2, 0.45), (4, 0.49), [], "--shapes (2, confidence 0.45) and --long (4, confidence 0.49)"),
        ((1, 0.8), (1, 0.9), [], "--shapes (1"),  # nothing to look at
    ],
)
def test_other_shapes_are_tried_before_they_are_named(monkeypatch, shapes, long, steps, tried):
    X, args = np.zeros((9, 2)), SimpleNamespace()
    models = {"--shapes": Found(*shapes), "--long": Found(*long)}
    monkeypatch.setattr(_others, "model_of", lambda args, option: models[option])
    found, rest = _others.steps_by_others(args, X, 0.3, doubted=False)
    assert [step[: len(text)] for step, text in zip(found, steps, strict=True)] == steps
    assert (rest is None) == (tried is None)
    assert tried is None or tried in rest
    assert all(model.rows is X for model in models.values())
    # likely enough: nothing is tried, unless there is another reason
    assert _others.steps_by_others(args, X, 0.5, doubted=False) == ([], None)
    assert _others.steps_by_others(args, X, None, doubted=False) == ([], None)
    both = [("--shapes", *shapes), ("--long", *long)]
    named = [option for option, k, confidence in both if k > 1 and confidence >= 0.5]
    found, _ = _others.steps_by_others(args, X, None, doubted=True)
    assert sorted(step.partition(":")[0] for step in found) == sorted(named)
    assert not any("clearer" in step for step in found)
    # labels of 2 and of 4 clusters that have nothing to do with each other
    assert [("other groups than" in step) for step in found] == [False, True][: len(found)]


def test_other_shapes_are_tried_on_tables_of_moderate_size(monkeypatch):
    asked = []
    monkeypatch.setattr(
        _others, "model_of", lambda args, option: asked.append(option) or Found(2, 1)
    )
    for n, d in [(5000, 64), (5001, 2), (20_001, 2), (100, 65)]:
        _others.tried_others(SimpleNamespace(), np.zeros((n, d)))
    assert asked == ["--shapes", "--long", "--shapes"]


def test_moons_are_named_as_shapes(ran, run):
    out = run("moons.npy")[1]
    assert re.search(
        r"^next +--shapes: 2 clusters of any shape, clearer \(confidence 0.9", out, re.M
    )
    assert ran("moons.npy --shapes")["K"] == "2"


@pytest.mark.parametrize(
    ("best", "confidences", "steps"),
    [
        (4, [0, 0.1, 0.05, 0.3, 0.2], ["--n-clusters 5: fits about as well"]),
        (2, [0, 0.3, 0.1, 0.0, 0.2], ["--n-clusters 5: fits about as well"]),
        (2, [0, 0.3, 0.05, 0.0, 0.01], []),
        (4, [0, 0.1, 0.05, 0.8, 0.05], []),
    ],
)
def test_the_next_number_to_look_at(best, confidences, steps):
    more = {"confidences": np.array(confidences), "confidence": confidences[best - 1]}
    path = made_up_path([90, 60, 30, 10, 12], LOW, HIGH, best, **more)
    found = _answer.steps_by_number(_choice.Choice(path, None))
    assert [step[: len(text)] for step, text in zip(found, steps, strict=True)] == steps


def test_columns_that_may_matter():
    path = SimpleNamespace(few_valued=np.array([0, 2]), skewed=np.array([1]))
    few, skewed = _answer.steps_by_columns(path, ["a, b", "2", "c"])
    assert few.startswith("""--exclude '"a, b",c': these columns have few values, which may be""")
    assert skewed.startswith("transform columns: column 2 is skewed")
    path = SimpleNamespace(few_valued=np.arange(7), skewed=np.empty(0, dtype=int))
    (few,) = _answer.steps_by_columns(path, list("abcdefgh"))
    assert few.startswith("leave out columns: a, b, c, d, e and 2 more have few values")
    # without them nothing would be left
    assert _answer.steps_by_columns(path, list("abcdefg")) == []


def test_long_clusters(ran, fitted, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) * [9, 0.5]
    X[150:, 1] += 5
    write("t.npy", X)
    report = ran("t.npy --long --out l.npy --seed 3")
    model = smallvar.MahalanobisMeans(random_state=3).fit(X)
    assert np.array_equal(np.load("l.npy"), model.labels_)
    assert (report["K"], report["confidence"]) == ("2", f"{model.confidence_:.2f}")
    report = ran("t.npy --long --n-clusters 3 --scale --out l.npy")
    model = smallvar.MahalanobisMeans(3, random_state=0).fit(scale(X))
    assert np.array_equal(np.load("l.npy"), model.labels_)
    assert report["K"] == "3" and "confidence" not in report


# What sets clusters apart


@pytest.mark.parametrize("options", ["", "--scale", "--shapes", "--shapes --scale"])
@pytest.mark.parametrize("most", [None, 1, 9])
def test_profiles_are_in_the_units_of_the_data(run, fitted, options, most):
    out = run(f"uneven.csv {options} --n-clusters 2 --profiles {most or ''}")[1]
    (model, _), *_ = [fit for fit in fitted if isinstance(fit[0], (DPMeans, smallvar.ShapeMeans))]
    lines = out.partition("what sets the clusters apart")[2].partition("\n\n")[0].splitlines()[1:]
    assert len(lines) == model.n_clusters_ > 1
    for c, line in enumerate(lines):
        number, n, _, told = line.split(maxsplit=3)
        rows = UNEVEN[model.labels_ == c]
        assert (int(number), int(n)) == (c, len(rows))
        cells = [cell.split() for cell in told.split("; ")]
        assert len(cells) <= (most or 3)
        for name, mean, _, spread, _ in cells:
            column = rows[:, ["wide", "narrow", "same"].index(name)]
            assert float(mean.replace(",", "")) == pytest.approx(column.mean(), abs=column.std())
            assert float(spread.replace(",", "")) == pytest.approx(column.std(), rel=0.06)
        shares = [int(cell[-1].strip("(%)")) for cell in cells]
        assert shares == sorted(shares, reverse=True) and sum(shares) <= 101


def test_profiles_of_one_cluster(run):
    out = run("blobs.csv --n-clusters 1 --profiles")[1]
    assert "\nnothing sets the cluster apart, as there is no other\n" in out
    assert "apart" not in run("blobs.csv --n-clusters 1")[1]


@pytest.mark.parametrize("options", ["", "--scale", "--shapes"])
def test_profiles_are_drawn(run, options):
    pytest.importorskip("matplotlib")
    drawn = [run(f"blobs.csv {options} --plot {name}") for name in ("a.png", "b.png --profiles")]
    assert [code for code, *_ in drawn] == [0, 0]
    assert Path("a.png").read_bytes() != Path("b.png").read_bytes()
    table = SimpleNamespace(name="t", titles=["x", "y", "z"], X=BLOBS)
    figure = _picture.profile_picture(table, DPMeans(random_state=0).fit(BLOBS))
    (axes,) = figure.axes
    assert {text.get_text() for text in axes.get_xticklabels()} == {"x", "y", "z"}
    assert axes.get_title().startswith("K = 3, clear (0.98); 60 rows of t\nred above")


# Clusters of any shape


@pytest.mark.parametrize("options", ["", "--n-clusters 3 --seed 4", "--scale --threads 1"])
def test_clusters_of_any_shape(ran, fitted, options):
    X = np.load("moons.npy")
    report = ran(f"moons.npy --shapes --out l.csv {options}")
    (model, rows), *_ = [fit for fit in fitted if isinstance(fit[0], smallvar.ShapeMeans)]
    assert np.array_equal(rows, scale(X) if "scale" in options else X)
    assert (model.n_clusters, model.random_state) == ((3, 4) if "seed" in options else (None, 0))
    assert model.n_threads == (1 if "threads" in options else None)
    assert np.array_equal(read_out("l.csv")[1], model.labels_)
    assert report["K"] == ("3" if model.n_clusters else "2")
    assert report["pieces"].startswith(f"{len(model.piece_clusters_)}, ")
    verdict = model.boundaries_.verdict
    total, parts = report["boundaries"].split(" between pieces: ")
    counts = {word.rstrip("s"): int(n) for n, word in (p.split() for p in parts.split(", "))}
    assert int(total) == len(verdict) == sum(counts.values())
    assert counts == dict(zip(*np.unique(verdict, return_counts=True), strict=True))
    assert "lam" not in report and "lam" not in report.get("scaled", "")


@pytest.mark.parametrize(
    ("name", "options", "hint"),
    [
        ("moons.npy", "", "{none} of {n} between clusters are no gaps"),
        ("moons.npy", "--lam 0.4", "{none} of {n} between clusters are no gaps"),
        ("moons.npy", "--n-clusters 1", None),
        ("moons.npy", "--lam 0.005", None),  # more clusters than are looked at
        ("blobs.csv", "", None),
    ],
)
def test_a_hint_where_boundaries_are_no_gaps(ran, fitted, name, options, hint):
    report = ran(f"{name} {options}")
    if hint is not None:
        (model, X), *_ = fitted
        verdict = smallvar.boundary_evidence(X, model.labels_).verdict
        hint = hint.format(none=int((verdict == "none").sum()), n=len(verdict))
    assert report.get("boundaries") == hint


def test_the_hint_looks_at_a_sample(monkeypatch):
    X = np.load("moons.npy").repeat(3, axis=0)
    labels = (X[:, 0] > 0.5).astype(np.int32) + (X[:, 0] > 1.2)
    seen = []

    def counted(X, labels, **options):
        seen.append(len(X))
        return SimpleNamespace(verdict=np.array(["none", "gap"]))

    monkeypatch.setattr(smallvar, "boundary_evidence", counted)
    monkeypatch.setattr(_shapes, "HINT_ROWS", 500)
    words = _shapes.hint_of_shapes(SimpleNamespace(threads=1), X, labels, 3)
    assert words == "1 of 2 between clusters is no gap"
    assert seen == [500]


@pytest.mark.parametrize(
    ("of_piece", "words"),
    [
        ([0], "1, which is the cluster"),
        ([0, 1], "2, each of them a cluster"),
        ([0, 0], "2, all in one cluster"),
        ([0, 1, 0, 1], "4, 2 in each cluster"),
        ([0, 1, 0], "3, 1 to 2 in each cluster"),
    ],
)
def test_pieces_in_words(of_piece, words):
    model = SimpleNamespace(piece_clusters_=np.array(of_piece), n_clusters_=max(of_piece) + 1)
    assert _shapes.pieces_in_words(model) == words


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ([], "no two pieces touch"),
        (["gap"], "1 between pieces: 1 gap"),
        (["none", "gap", "none", "gap", "unclear"], "5 between pieces: 2 gaps, 1 unclear, 2 none"),
    ],
)
def test_boundaries_in_words(verdict, words):
    assert _shapes.boundaries_in_words(np.array(verdict, dtype="<U7")) == words


# The number of clusters, chosen from the data


@pytest.mark.parametrize("path", [False, True])
def test_a_seed_repeats_the_search(run, path):
    def result(*argv):
        call = f"iris.npy {'--path' * path}"
        return [line for line in run(call, *argv)[1].splitlines() if "seconds" not in line]

    assert result() == result("--seed", 0)
    assert result("--seed", 5) == result("--seed", 5)


def made_up_path(criterion, low, high, best, **more):
    """A path with these criteria and ranges of lam for 1, 2, ... clusters."""
    counts = np.arange(1, len(criterion) + 1)
    criterion = np.array(criterion, dtype=float)
    facts = {
        "n_clusters": counts,
        "inertia": 100.0 / counts,
        "criterion": criterion,
        "lam_low": np.array(low, dtype=float),
        "lam_high": np.array(high, dtype=float),
        "best": best,
        "lam": 1.0,
        "tie": 9.2,
        "n_samples": 100,
        "ranking": counts[np.argsort(criterion, kind="stable")],
    }
    return SimpleNamespace(**facts | more)


LOW, HIGH = [40, 20, 15, 10, 0], [np.inf, 40, 20, 15, 10]


@pytest.mark.parametrize(
    ("confidence", "alike", "words"),
    [
        (0.8, [18], "clear"),
        (1.0, [], "clear"),
        (0.79, [], "not clear"),
        (0.5, [18], "not clear: 18 fits about as well"),
        (0.5, [16, 18, 19], "not clear: 16, 18 and 19 fit about as well"),
        (0.0, [1, 2, 3, 30], "not clear: 1 to 3 and 30 fit about as well"),
        (0.5, [15, 19], "not clear: 15 and 19 fit about as well"),
        (0.5, [34, 40], "not clear: 34 and 40 fit about as well"),
        (0.5, [31, 40], "not clear: 31 and 40 fit about as well"),
        (0.5, [1, 3, 5, 8, 40], "not clear: 5 numbers from 1 to 40 fit about as well"),
        (0.5, [1, 3, 5, 40], "not clear: 1, 3, 5 and 40 fit about as well"),
    ],
)
def test_certainty_in_words(confidence, alike, words):
    counts = np.array([*range(1, 33), 34, 40, 60])
    words = words.replace("clear", f"clear (confidence {confidence:.2f})")
    assert _choice.certainty_in_words(confidence, counts, alike) == words


def test_numbers_about_as_good():
    counts = np.array([1, 2, 3, 4, 5, 8])
    confidences = np.array([0.1, 0.01, 0.45, 0.15, 0.14, 0.15])
    assert _choice.about_as_good(3, counts, confidences) == [4, 8]
    assert _choice.about_as_good(1, counts, confidences) == [3, 4, 5, 8]
    assert _choice.about_as_good(1, counts, np.zeros(6)) == []


@pytest.mark.parametrize(
    ("criterion", "best", "most", "confidences", "words"),
    [
        ([90, 7, 30, 40, 60], 2, None, None, "2 clusters, chosen from the data."),
        ([90, 7, 30, 40, 60], 2, None, [0, 0.9, 0.1, 0, 0], "2 clusters, and this number is clear"),
        # 3 is too many
        ([90, 70, 30, 4, 60], 2, 2, [0.1, 0.6, 0.3, 0, 0], "of 2 at most: 4 would fit better, but"),
        ([90, 70, 69, 68, 67], 2, 2, None, "2 clusters, chosen from the data."),
        ([90, 7, 5, 6, 60], 2, None, [0, 0.4, 0.3, 0.2, 0], "not clear (confidence 0.40): 3 and 4"),
        ([9, *[np.inf] * 4], 1, None, [1, 0, 0, 0, 0], "1 cluster: too few distinct rows to"),
        ([9, 8, 8, 9, 9], 1, 1, [0.1, 0.8, 0, 0, 0], "1 cluster: no other was allowed."),
    ],
)
def test_how_sure_the_number_is(criterion, best, most, confidences, words):
    more = {}
    if confidences is not None:
        more = {"confidences": np.array(confidences), "confidence": confidences[best - 1]}
    choice = _choice.Choice(made_up_path(criterion, LOW, HIGH, best, **more), most)
    assert words in choice.in_words(best)
    fewer = choice.in_words(best + 7)
    assert fewer.startswith(f"{best + 7} clusters after the last sweeps, of {best} that the data")


def test_numbers_that_fit_about_as_well_are_marked():
    confidences = np.array([0, 0.4, 0.3, 0.1, 0.2])
    path = made_up_path([90, 7, 5, 6, 60], LOW, HIGH, 2, confidence=0.4, confidences=confidences)
    *rows, alike, chosen = _choice.Choice(path, None).as_table().splitlines()[1:]
    assert [row.split()[0] for row in rows if row[-1] == "="] == ["3", "5"]
    assert [row.split()[0] for row in rows if row[-1] == "*"] == ["2"]
    assert alike == "   = fits about as well as the one chosen"
    assert chosen == "   * chosen: gaps between clusters, which the criterion does not know"
    path.confidence = 0.9
    *_, last, chosen = _choice.Choice(path, 2).as_table().splitlines()
    assert last.endswith("*")
    assert chosen == "   * chosen: the lowest criterion"


BEFORE = "found before the last sweeps, after which K = 2 is the minimum of SSE + lam K from 2 to 4"


@pytest.mark.parametrize(
    ("best", "low", "high", "lam", "words"),
    [
        (2, [4, 2, 0], [np.inf, 4, 2], 3, "K = 2 is best from 2 to 4"),
        (1, [4, 2, 0], [np.inf, 4, 2], 8, "K = 1 is best from 4 on"),
        (3, [4, 2, 0], [np.inf, 4, 2], 1, "K = 3 is best up to 2"),
        (1, [0], [np.inf], 1, "K = 1 is best for all lam"),
        (2, [4, 2, 0], [np.inf, 4, 2], 1.9, BEFORE),
        (2, [4, 2, 0], [np.inf, 4, 2], 4.1, BEFORE),
    ],
)
def test_the_range_of_lam(best, low, high, lam, words):
    choice = _choice.Choice(made_up_path([9] * len(low), low, high, best, lam=lam), None)
    assert choice.lam_in_words() == f"a price for each cluster, not a distance; {words}"


@pytest.mark.parametrize(
    ("errors", "best", "most", "others"),
    [
        ([20, 12, 10, 7, 0], 4, None, "below 4 it is at K = 5 or more, above at K = 2 or fewer"),
        ([20, 12, 10, 7, 0], 3, 4, "below 4 it is at K = 5 or more, above at K = 2 or fewer"),
        ([20, 12, 6, 6], 4, None, "K = 3 has no larger SSE"),
    ],
)
def test_a_number_that_is_best_for_no_lam(errors, best, most, others):
    low, high = envelope(np.arange(1, len(errors) + 1), errors)
    choice = _choice.Choice(made_up_path([9] * len(errors), low, high, best), most)
    words = f"a price for each cluster, not a distance; no lam makes K = {best} the minimum of "
    assert choice.lam_in_words() == f"{words}SSE + lam K: {others}"


def test_what_is_printed_of_lam_holds(run):
    X = np.random.default_rng(0).normal(size=(900, 8)) ** 3  # no clusters, and a long path
    write("t.npy", X)
    for k in range(2, 12):
        _, out, _ = run("t.npy --verbose --n-clusters", k)
        words = re.search(r"^lam +(\S+) \(.*; (.*)\)$", out, re.M)
        path = DPMeans(n_clusters=k, random_state=0).fit(X).path_
        assert float(words[1]) == pytest.approx(path.lam, rel=1e-7)
        minimum = [path.at(lam) == k for lam in np.geomspace(1e-3, 1e9, 20_000)]
        inside = path.at(path.lam) == k
        assert any(minimum) == ("no lam" not in words[2])
        assert inside == words[2].startswith(f"K = {k} is best")


def test_merge_with_a_penalty(ran):
    X = np.random.default_rng(0).normal(size=(400, 1)) / 10
    X[:200] += 1.0
    write("t.npy", X)  # no row is as far as sqrt(5) from the mean, but two save 95
    done = python("-m", "smallvar", "t.npy", "--lam", 5)
    assert re.search(r"^K +1$", done.stdout, re.M)
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("use --algorithm merge, or --lam auto to let the data choose.\n")
    report = ran("t.npy --lam 5 --algorithm merge --verbose")
    assert (report["K"], report["lam"]) == ("2", "5 (given)")
    assert report["sizes"] == "200, 200 (labels 0 to 1)"


@pytest.mark.parametrize(
    "text",
    [
        *("1,2\n", "1,2\n3,4\n", "1,2\n1,2\n"),  # fewer than 3 rows
        *("1,2\n1,2\n1,2\n1,2\n1,2\n", "5\n" * 40),  # all of them equal
    ],
)
@pytest.mark.parametrize("options", ["", "--scale", "--algorithm collapsed"])
def test_rows_that_make_one_cluster(ran, text, options):
    write("few.csv", text)
    report = ran(f"few.csv {options} --out l.csv")
    assert (report["K"], "confidence" in report) == ("1", False)
    assert report["1"] == "cluster: too few distinct rows to support another."
    assert report["sizes"] == report["n"] == str(text.count("\n"))
    assert set(read_out("l.csv")[1]) == {0}


def apart(rng, k, d):
    """Centers whose blobs of standard deviation 1 do not touch."""
    centers = [rng.uniform(-30, 30, d)]
    while len(centers) < k:
        center = rng.uniform(-30, 30, d)
        if np.linalg.norm(center - centers, axis=1).min() > 10:
            centers.append(center)
    return np.array(centers)


@pytest.mark.parametrize("far", [30, 400])  # in blobs that span 60
@pytest.mark.parametrize("seed", range(5))
def test_outliers_leave_the_blobs(ran, seed, far):
    rng = np.random.default_rng(seed)
    k, d = rng.integers(3, 9), rng.integers(2, 7)
    blob = np.arange(500) % k
    X = apart(rng, k, d)[blob] + rng.normal(size=(500, d))
    way = rng.normal(size=(5, d))
    outliers = X[rng.integers(0, 500, 5)] + far * way / np.linalg.norm(way, axis=1, keepdims=True)
    write("t.npy", np.concatenate([X, outliers]))
    ran("t.npy --out l.npy")
    assert adjusted_rand_score(blob, np.load("l.npy")[:500]) >= 0.98


@pytest.mark.parametrize("d", [1, 2, 6])
def test_one_blob_is_one_cluster(ran, d):
    write("t.npy", np.random.default_rng(d).normal(size=(300, d)))
    assert ran("t.npy")["K"] == "1"


# Paths


def test_path_in_the_search_of_options(ran, monkeypatch):
    asked, find = [], smallvar.cluster_path
    monkeypatch.setattr(
        smallvar, "cluster_path", lambda X, **options: asked.append(options) or find(X, **options)
    )
    ran("blobs.csv --path")
    ran("blobs.csv --path 7 --seed 4 --threads 2 --verbose")
    names = ("max_clusters", "random_state", "n_threads", "verbose")
    expected = [(None, 0, None, 0), (7, 4, 2, 1)]
    assert asked == [dict(zip(names, values, strict=True)) for values in expected]


def test_path_of_a_sample(run):
    X = np.repeat([[0.0, 0.0], [9.0, 9.0]], 15_000, axis=0)
    X += np.random.default_rng(0).normal(size=X.shape)
    code, out, err = run("--path", write("t.npy", X))
    assert (code, err) == (0, "")
    assert re.search(r"^sample +20,000 rows, drawn at random$", out, re.M)
    assert re.search(r"^K +2$", out, re.M)
    total = ((X - X.mean(axis=0)) ** 2).sum()
    table = out[out.index("SSE") :].splitlines()
    assert float(table[1].split()[1]) == pytest.approx(total, rel=0.05)


def test_length_of_the_path_of_features(run, refused):
    write("t.csv", "1,2\n2,1\n5,7\n")
    for call, length in [
        ("--path sums.csv", 11),
        ("sums.csv --path", 11),
        ("t.csv --path", 4),
        ("t.csv --path 99", 4),
        ("t.csv --path 12 --assign exact", 4),
    ]:
        lines = run(f"features --starts 1 {call}")[1].split("\n\n")[2].splitlines()
        assert len([line for line in lines if line.split()[0].isdigit()]) == length
    assert "at most 12" in refused("features sums.csv --path 13 --assign exact")
    with pytest.raises(ValueError, match=f"must be <= {_features.MOST_EXACT} where assign is"):
        smallvar.feature_path(SUMS, _features.MOST_EXACT + 1, assign="exact")


@pytest.mark.parametrize(
    ("low", "high", "error", "best"),
    [
        ([5, 2, 1, 0], [np.inf, 5, 2, 1], [9, 4, 2, 1], 1),
        ([5, 2, 0.5, 0], [np.inf, 5, 2, 0.5], [9, 4, 2, 1], 2),
        ([5, np.nan, 0.5, 0], [np.inf, np.nan, 5, 0.5], [9, 4, 2, 1], 2),
        ([5, 1e-9, 1e-9, 0], [np.inf, 5, 1e-9, 1e-9], [9, 4, 1e-30, 0], 2),
        ([5, 0, np.nan], [np.inf, 5, np.nan], [9, 0, 0], 1),
        ([5, 0], [np.inf, 5], [9, 4], None),
        ([0, np.nan], [np.inf, np.nan], [0, 0], None),
    ],
)
def test_widest_range(low, high, error, best):
    arrays = [np.array(values, dtype=float) for values in (low, high, error)]
    low, high, error = arrays
    path = FeaturePath(np.arange(len(low)), error, low, high, np.zeros(len(low)), 0, 1.0)
    assert _features.widest(_features.without_rounding(path)) == best


# Commands and arguments


def test_a_command_is_one_function(monkeypatch, run):
    given = []
    monkeypatch.setitem(COMMANDS, "other", given.append)
    assert run("other a --b") == (0, "", "")
    assert given == [["a", "--b"]]
    monkeypatch.setitem(COMMANDS, "other", test_a_command_is_one_function)
    commands = run("--help")[1].partition("commands:\n")[2].splitlines()
    assert [line.split()[0] for line in commands[:4]] == ["cluster", "features", "track", "other"]


@pytest.mark.parametrize("call", ["--version", "cluster --version"])
def test_version(run, call):
    assert run(call) == (0, f"smallvar {smallvar.__version__}\n", "")


def test_show_config(run, capsys):
    smallvar.show_config()
    expected = capsys.readouterr().out
    assert run("--show-config") == (0, expected, "")
    assert smallvar.__version__ in expected


OPTIONS = {
    "": "lam n-clusters guess path algorithm kinds shapes long profiles max-clusters "
    "min-cluster-size batch-size dask scale",
    "features": "lam n-components path algorithm assign starts swaps max-features components shape",
    "track": "time lam guess t-q k-tau q tau starts tracks scale",
}
SHARED = "columns exclude drop-missing header no-header decimal encoding out plot threads seed"


@pytest.mark.parametrize(
    ("command", "words", "examples"),
    [
        ("", "where the data choose K, and with merge, the rows that the search begins from", 4),
        ("features", "random starts, of which the best is kept (default: at most 10, and no", 3),
        ("track", "print a line for every step", 2),
    ],
)
def test_help_is_complete(run, monkeypatch, command, words, examples):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(f"{command} --help")
    assert (code, err) == (0, "")
    begin = out[: out.index("options:\n")]
    assert begin.index("\nexamples:\n") < begin.index("\ncommands:\n")
    for option in f"{OPTIONS[command]} {SHARED} verbose version show-config".split():
        assert f"  --{option}" in out
    assert ("--scale" in out) == (command != "features")  # features add up from 0
    for part in (words, "default: 0, so that the same command", "squared data units"):
        assert part in " ".join(out.split())
    assert len(re.findall("^  (?:smallvar |sort .* smallvar )", out, re.M)) == examples
    assert all(len(line) <= 80 for line in out.splitlines()[1:])
    assert run(f"{command} -h") == (0, out, "")


# What is refused

# calls, what the values of options must be, and values that are not
BAD_VALUES = [
    ("blobs.csv --lam", "a number >= 0", ["abc", "-1", "nan", "1_0.5", "Auto"]),
    ("blobs.csv --n-clusters", "an integer >= 1", ["0", "2.5", "1_0", "\uff13"]),
    ("blobs.csv --path", "an integer >= 1", ["0", "2.5", "1_0", "two"]),
    ("blobs.csv --guess", "an integer >= 1", ["0"]),
    ("blobs.csv --max-clusters", "an integer >= 1", ["0"]),
    ("blobs.csv --threads", "an integer >= 1", ["0"]),
    ("blobs.csv --profiles", "an integer >= 1", ["0", "1.5"]),
    ("blobs.csv --seed", "an integer >= 0", ["-1"]),
    ("blobs.csv --batch-size", "an integer >= 1", ["0"]),
    ("features sums.csv --lam", "a number >= 0", ["-1"]),
    ("features sums.csv --n-components", "an integer >= 1", ["0"]),
    ("features sums.csv --path", "an integer >= 1", ["0", "2.5", "x"]),
    ("features sums.csv --starts", "an integer >= 1", ["0"]),
    ("features sums.csv --swaps", "an integer >= 0", ["-1"]),
    ("features sums.csv --max-features", "an integer >= 1", ["0"]),
    ("features sums.csv --shape", "of the form 14x14", ["6", "2x", "0x6"]),
    ("track stream.csv --time t --k-tau 2 --t-q", "a number > 1", ["1"]),
    ("track stream.csv --time t --t-q 2 --k-tau", "a number >= 1", ["0.9"]),
    ("track stream.csv --time t --tau 1 --q", "a number >= 0", ["-1"]),
    ("track stream.csv --time t --q 1 --tau", "a number >= 0", ["nan"]),
    ("track stream.csv --time t --starts", "an integer >= 1", ["0"]),
]
REFUSED = {
    "": [
        ("none.csv", "cannot read none.csv: No such file or directory"),
        ("none", "No such file"),
        (".", ". is a directory; --dask reads one of .parquet files"),
        ("features .", ". is a directory"),
        ("./cluster", "./cluster: No such file"),
        ("cluster cluster", " cluster: No such file"),
        ("./features", "./features: No such file"),
        ("feature --lam 3", "feature is neither a command nor a file; did you mean features?"),
        ("Track --lam 3", "Track is neither a command nor a file; did you mean track?"),
        ("clusters --lam 3", "clusters is neither a command nor a file; did you mean cluster?"),
        ("--plot none.csv", "none.csv: No such file"),
        ("--path blobs.csv --plot blobs.csv", "this would overwrite the data"),
        ("features --path sums.csv --plot sums.csv", "this would overwrite the data"),
        ("--header", "--header has no meaning without DATA"),
        ("--no-header", "--no-header has no meaning without DATA"),
        ("--decimal ,", "--decimal , has no meaning without DATA"),
        ("--encoding ascii", "--encoding ascii has no meaning without DATA"),
        ("--kinds count=normal", "no meaning without DATA"),
        ("zeros.npy --header", "--header: zeros.npy is not a text file"),
        ("zeros.npy --no-header", "--no-header: zeros.npy is not a text file"),
        ("zeros.npy --decimal ,", "zeros.npy is not a text file"),
        ("zeros.npy --encoding ascii", "zeros.npy is not a text file"),
        ("zeros.npy --batch-size 2 --header", "--header has no meaning with --batch-size"),
        ("zeros.npy --batch-size 2 --encoding ascii", "ascii has no meaning with --batch-size"),
        (". --dask --no-header", "--no-header has no meaning with --dask"),
        ("track --exclude x,y", "leaves no column of the stream"),
        ("track --columns z", "the stream has no column 'z', but 3 columns: time, x, y"),
        ("track stream.csv", "--time COLUMN is missing"),
        ("track zeros.npy --time t", "no column 't', but 2 columns: 1, 2"),
        ("track stream.csv --t-qq 3", "smallvar track --help); did you mean --t-q?"),
    ],
    "blobs.csv": [
        ("--lam 2 --n-clusters 3", "--n-clusters: not allowed with argument --lam"),
        ("--lam auto --n-clusters 3", "not allowed with argument --lam"),
        ("--n-clusters 3 --guess 3", "--guess: not allowed with argument --n-clusters"),
        (f"--max-clusters {'9' * 30}", "argument --max-clusters: must be <= "),
        ("--algorithm magic", "invalid choice: 'magic'"),
        ("--path --lam 2", "argument --lam: not allowed with argument --path"),
        ("--path --guess 2", "--guess: not allowed with argument --path"),
        ("--path --n-clusters 2", "--n-clusters: not allowed with argument --path"),
        ("--path --algorithm merge", "--algorithm has no meaning with --path"),
        ("--path --profiles", "--profiles has no meaning with --path"),
        ("--path --min-cluster-size 2", "--min-cluster-size has no meaning with --path"),
        ("--lam 2 --min-cluster-size 2", "--min-cluster-size has no meaning with --lam"),
        ("--guess 2 --min-cluster-size 2", "--min-cluster-size has no meaning with --guess"),
        ("--min-cluster-size 0", "--min-cluster-size: must be an integer >= 1, got '0'"),
        ("--path 5 --max-clusters 2", "--max-clusters has no meaning with --path: give --path M"),
        ("--alg serial", "unrecognized arguments"),
        ("another.csv", "unrecognized arguments: another.csv (see smallvar --help)\n"),
        ("--n-cluster 3", "(see smallvar --help); did you mean --n-clusters?\n"),
        ("--lamm=3", "; did you mean --lam?\n"),
        ("3 --Scale", "; did you mean --scale?\n"),
        ("--zzz", "(see smallvar --help)\n"),
        ("--exclude 'x\ny'", "--exclude x y: new-line character seen in unquoted field"),
        ("--out", "expected one argument"),
        ("--out l.txt", "--out l.txt: the name must end in .csv, .tsv, .npy or .parquet, or be -"),
        ("--out labels", "labels: the name must end in .csv, .tsv, .npy or .parquet, or be -"),
        ("--out l.csv.gz", "l.csv.gz: the name must end in .csv, .tsv, .npy or .parquet, or be -"),
        ("--plot x.txt", "--plot x.txt: the name must end in .png, .pdf or .svg"),
        ("--decimal ';'", "invalid choice: ';'"),
        ("--encoding klingon", "--encoding klingon: this encoding is not known"),
        ("--encoding zip", ": this encoding is not known"),
        ("--encoding 'a\0b'", ": this encoding is not known"),
        ("--header --no-header", "not allowed with argument --header"),
        ("--columns w", "--columns w: blobs.csv has no column 'w', but 3 columns: x, y, z"),
        ("--batch-size 9", "--batch-size: the name of DATA must end in .npy or .parquet"),
        *[
            (f"--{shapes} {option}", f"{option.split()[0]} has no meaning with --{shapes}")
            for shapes in ("shapes", "long")
            for option in (
                *("--lam 2", "--lam auto", "--guess 3", "--path", "--path 5", "--algorithm merge"),
                *("--max-clusters 3", "--kinds x=normal", "--batch-size 9"),
            )
        ],
    ],
    "words.csv": [("--shapes", "without --shapes, words and gaps are taken, too")],
    "small.csv": [
        ("--columns d", "small.csv has no column 'd', but 4 columns: a, b, b.1, c"),
        ("--columns 1", "small.csv has no column '1', but 4 columns"),
        ("--columns a:d", "small.csv has no column 'd'"),
        ("--columns b.2", "small.csv has no column 'b.2'"),
        ("--columns a,c,a", "names a column twice"),
        ("--columns a,:c", "names a column twice"),
        ("--columns ''", "names no column"),
        ("--columns c:a", "names no column"),
        ("--columns a,", "small.csv has no column ''"),
        ("--exclude d", "--exclude d: small.csv has no column 'd', but 4 columns: a, b, b.1, c"),
        ("--exclude a:d", "--exclude a:d: small.csv has no column 'd'"),
        ("--exclude a,a", "--exclude a,a: names a column twice"),
        ("--exclude ''", "--exclude : names no column"),
        ("--exclude a:", "--exclude a:: leaves no column of small.csv"),
        ("--columns b --exclude b", "--exclude b: leaves no column of small.csv"),
        ("--kinds count", "argument --kinds: must be NAME=KIND,..., got 'count'"),
        ("--kinds a=normal,a=poisson", "argument --kinds: names 'a' twice"),
        ("--kinds a=normal --scale", "--scale has no meaning with --kinds"),
        ("--kinds a=normal --drop-missing", "--drop-missing has no meaning with --kinds"),
    ],
    "features sums.csv": [
        ("--lam 2 --n-components 3", "--n-components: not allowed with argument --lam"),
        ("--lam 2 --path", "--path: not allowed with argument --lam"),
        ("--path 13 --assign exact", "--path 13: at most 12 with --assign exact"),
        (f"--starts {'9' * 30}", "argument --starts: must be <= "),
        ("--algorithm serial", "invalid choice: 'serial'"),
        ("--assign exact", "--assign has no meaning with a penalty, unless it is --algorithm coll"),
        ("--lam 2 --assign exact", "--assign has no meaning with a penalty"),
        (
            "--algorithm collapsed --assign exact",
            "--assign exact needs --max-features of at most 12 with --algorithm collapsed; without",
        ),
        (
            "--algorithm collapsed --assign exact --max-features 13",
            "--assign exact needs --max-features of at most 12 with --algorithm collapsed; without",
        ),
        ("--n-components 2 --algorithm sweep", "--algorithm has no meaning with --n-components"),
        ("--n-components 2 --max-features 2", "--max-features has no meaning with --n-components"),
        ("--path --algorithm sweep", "--algorithm has no meaning with --path"),
        ("--path --max-features 3", "--max-features has no meaning with --path"),
        ("--path --out z.csv", "--out has no meaning with --path"),
        ("--path --components a.csv", "--components has no meaning with --path"),
        ("--path --shape 2x3", "--shape has no meaning with --path"),
        ("--shape 2x3", "--shape has no meaning without --plot"),
        ("--n-clusters 3", "unrecognized arguments: --n-clusters 3 (see smallvar features --help"),
        ("--scale", "unrecognized arguments: --scale"),
        ("--out l.txt", "l.txt: the name must end in .csv, .tsv, .npy or .parquet, or be -"),
    ],
    "track stream.csv --time t": [
        ("--lam 2 --guess 3", "--guess: not allowed with argument --lam"),
        ("--n-clusters 3", "unrecognized arguments: --n-clusters 3"),
        ("--max-clusters 3", "unrecognized arguments: --max-clusters 3"),
        ("--algorithm serial", "arguments: --algorithm serial (see smallvar track --help)\n"),
        ("--guess 16", "--guess 16: the largest step (t = 100) has only 15 rows"),
        ("--t-q 3", "--t-q has no meaning without --k-tau"),
        ("--k-tau 3", "--k-tau has no meaning without --t-q"),
        ("--q 3", "--q has no meaning without --tau"),
        ("--tau 3", "--tau has no meaning without --q"),
        ("--t-q 3 --tau 1", "--t-q and --tau exclude each other: give --t-q and --k-tau, or --q"),
        ("--out l.txt", "l.txt: the name must end in .csv, .tsv, .npy or .parquet, or be -"),
    ],
}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *[(f"{call} {more}", words) for call, rows in REFUSED.items() for more, words in rows],
        *[
            (f"{call} {value}", f"argument {call.split()[-1]}: must be {what}, got {value!r}")
            for call, what, values in BAD_VALUES
            for value in values
        ],
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
        ("blobs.csv --n-clusters 61", "n_clusters must be <= 60, the number of distinct rows, got"),
        ("blobs.csv --n-clusters 3 --max-clusters 2", "n_clusters must be <= max_clusters=2, got"),
        ("blobs.csv --guess 61", "guess must be <= n_samples=60, got guess=61"),
        ("features sums.csv --lam 0", "lam must be > 0"),
        ("features sums.csv --lam inf", "lam must be finite, got inf"),
        ("features sums.csv --n-components 31", "n_components must be"),
        ("features sums.csv --n-components 13 --assign exact", "12"),
        ("track stream.csv --time t --lam 0", "lam must be > 0"),
        ("track stream.csv --time t --lam inf", "lam must be finite"),
        ("track stream.csv --time t --t-q 2 --k-tau inf", "k_tau must be finite"),
        ("blobs.csv --kinds x=gaussian", "must be None or one of 'normal'"),
        ("blobs.csv --kinds other=normal", "got 'other'; X has x, y, z"),
        ("blobs.csv --kinds x=poisson", "whole numbers >= 0 for the kind 'poisson'"),
    ],
)
def test_refused_by_the_estimator(refused, call, message):
    assert message in refused(call)


@pytest.mark.parametrize(
    ("call", "text", "message"),
    [
        ("features", "", "t.csv is empty"),
        ("features", "\n \n\n", "t.csv is empty"),
        ("features", "x\n1\n \n", "t.csv, line 3, column x: missing value"),
        ("features", "a,b\n", "t.csv has a header but no rows"),
        ("features", "a,b\n1,2\n3\n", "t.csv, line 3: 1 cell, but 2 in line 1"),
        ("features", "1,2\n\n3,4,5\n", "t.csv, line 3: 3 cells, but 2 in line 1"),
        ("features", "a,b\n1,2\n3,x4\n", "t.csv, line 3, column b: 'x4' is not a number"),
        ("features", "1,2\n3,x4\n", "t.csv, line 2, column 2: 'x4' is not a number"),
        ("features", "a,b\n1,2\n3,1_1\n", "t.csv, line 3, column b: '1_1' is not a number"),
        ("features", "a,b\n1,2\n3,\uff11\n", "t.csv, line 3, column b: '\uff11' is not a number"),
        ("features", "1,2\n3,1e1_0\n", "t.csv, line 2, column 2: '1e1_0' is not a number"),
        ("features", "a\n1\n" + "x" * 99, f"line 3, column a: '{'x' * 27}...' is not a number"),
        ("features", "a;b;c\n1;2;1.5\n3,5;4;2\n", "column a: '3,5' is not a number (or give --dec"),
        ("features", "a,b\n1,2\n,4\n", "t.csv, line 3, column a: missing value"),
        ("features", "a,b\n1,2\n3, \n", "t.csv, line 3, column b: missing value"),
        ("features", "a,b\n1,NA\n3,4\n", "t.csv, line 2, column b: missing value"),
        ("features", "a,b\n1,2\n\n3,NaN\n", "t.csv, line 4, column b: missing value"),
        ("features", "1,2\n3,nan\n", "t.csv, line 2, column 2: missing value"),
        ("features", "x\n1\n\n3\n", "t.csv, line 3: missing value"),
        ("features", 'x\n1\n""\n', "t.csv, line 3, column x: missing value"),
        ("features", "a,b\n1,2\n3,-inf\n", "t.csv, line 3, column b: infinite value"),
        ("features", "1,2\n3,1e999\n", "t.csv, line 2, column 2: infinite value"),
        ("features", "a,b\n1,red\n3,blue\n", "t.csv, line 2: column b ('red') not numeric; choose"),
        ("features", "5.1,setosa\n4.9,setosa\n", "t.csv, line 1: column 2 ('setosa') not numeric"),
        ("features", "a,b,c\nu,red,\n3,blue,1\n", "columns a ('u'), b ('red') not numeric"),
        ("features", f"{','.join('abcdefgh')}\n{'x,' * 7}y\n", "e ('x') and 3 more not numeric"),
        ("features", ",a,b\n0,1,2\n", "t.csv: column 1 has no name in the header; if it only numb"),
        ("features", ",0,1,2\n0,1,2,5\n", "t.csv: column 1 has no name in the header"),
        ("features --columns :b", ",a,,b\n1,2,3,4\n", "column 1 has no name in the header"),
        ("features", "a\0,b\n1,2\n", "t.csv is not a text file in UTF-8"),
        ("features", "a b\n1 2\n3\n4 5\n", "t.csv, line 3: 1 cell, but 2 in line 1"),
        ("features", "a b\n1 2\n\n3 NA\n", "t.csv, line 4, column b: missing value"),
        ("features", "my column\n1\n2\nx\n", "line 4, column my column: 'x' is not a number"),
        ("features", "a;b\n1,5;2.5\n", "with --columns or --exclude (or give --decimal ,)"),
        ("features", "a,b\n1,2\n3," + "4" * 200_000, "line 3: a cell has more than 131,072 char"),
        ("features --columns a", "a,b\n1,2\n3\n", "t.csv, line 3: 1 cell, but 2 in line 1"),
        ("--encoding ascii", "größe\n1\n", "t.csv is not a text file in ascii: 'ascii' codec"),
        ("--decimal ,", "a,b\n1,2\n3,4\n", "--decimal ,: t.csv is separated by commas; it must be"),
        ("--decimal ,", "1,2,3\n4,5,6\n", "t.csv is separated by commas"),
        ("--decimal ,", '"1,5","2,5"\n"3,5","4,5"\n', "t.csv is separated by commas"),
        ("--decimal ,", "a;b\n1,5;2.5\n", "column b ('2.5') not numeric"),
        ("--decimal ,", "a;b\n1,5;2\n1;2.5\n", "column b: '2.5' is not a number (or give --deci"),
        ("--decimal ,", "a;b\n1,5;2\n1;1.234.5\n", "line 3, column b: '1.234.5' is not a number"),
        ("--drop-missing", "a,b\n1,x\n", "column b ('x') not numeric"),
        ("--drop-missing", "a,b\n1,2\n,x\n", "line 3, column b: 'x' is not a number"),
        ("--drop-missing", "a,b\n1,2\nNA,inf\n", "line 3, column b: infinite value"),
        ("--drop-missing", "a,b\n1,2\n3\n", "line 3: 1 cell, but 2 in line 1"),
        (
            "--drop-missing",
            "a,b\n1,\n,2\n",
            "--drop-missing leaves no row, each has a missing valu",
        ),
        ("--scale", "a,b\n1,1e200\n2,-1e200\n", "--scale: the values of column b are too large to"),
        ("track --time t", "t,x\nnoon,1\n", "times must be numbers or dates like 2024-01-31T12:00"),
        ("track --time t", "t,x\n1,1\n2024-01-31,1\n", "line 3, column t: times must be numbers l"),
        (
            "track --time t",
            "t,x\n2024-01-31,1\n7,1\n",
            "line 3, column t: times must be dates like",
        ),
        ("track --time t", "t,x\n2024-01-31,1\n2024-02-31,1\n", "before, got '2024-02-31'"),
        ("track --time t", "t,x\n,1\n", "line 2, column t: missing value"),
        ("track --time t", "t,x\n1,1\nNA,1\n", "line 3, column t: missing value"),
        ("track --time t", "t,x\n2024-01-31,1\n?,1\n", "line 3, column t: missing value"),
        ("track --time t", "t,x\n1,1\nnan,1\n", "line 3, column t: missing value"),
        ("track --time t", "t,x\n1,1\n\ninf,1\n", "line 4, column t: infinite value"),
        ("track --time t", "t,x\n1,red\n", "line 2: column x ('red') not numeric"),
        ("track --time t", "t\n1\n", "t.csv has no other column"),
        ("track --time t", "u,x\n1,1\n", "t.csv has no column 't', but 2 columns: u, x"),
        ("track --time t", "t,t\nu,1\n", "line 2, column t: times must be numbers or dates"),
        ("track --time t", "t,x\n01/02/2024,1\n", "days and months cannot be told apart"),
        ("track --time t", "t,x\n31.01.2024,1\n2024-01-31,1\n", "times must be dates like those"),
        ("track --time t", "t,x\n2024-01-31T00:00:00.0000000001,1\n", "times must be numbers"),
        ("track --time t", f"t,x\n1.{'0' * 19}1,1\n1,1\n", "more digits than can be kept"),
        ("track --time t --drop-missing", "t,x\n,1\n,2\n", "--drop-missing leaves no row"),
        (
            "track --time t --drop-missing",
            f"t,x\n{2**53},1\n,2\n{2**53 + 1},3\n",
            "column t: whole times of so many digits cannot be kept beside missing ones",
        ),
        ("track --time t --drop-missing", "t,x\n,1\n3,2\nnoon,3\n", "must be numbers like those"),
        (
            "track --time t --drop-missing",
            "t,x\n,1\n2024-01-31,2\nnoon,3\n",
            "times must be dates like those before",
        ),
    ],
)
def test_text_refused(refused, no_fit, call, text, message):
    write("t.csv", text)
    assert message in refused(call, "t.csv")
    if call == "features" and "missing value" not in message and "not numeric" not in message:
        assert message in refused("t.csv")  # others are clustered as they are


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
        (b"1,2,3\n4,5,6\n", "magic string"),
        (as_npy(np.zeros((100, 3)))[:-8], "file size"),
    ],
)
def test_npy_refused(refused, no_fit, array, message):
    assert message in refused("features", write("t.npy", array))


def test_far_into_a_file_the_place_is_right(refused, no_fit):
    lines = ["a,b"] + ["1,2"] * 3000
    for cell, words in (("inf", "infinite"), ("?", "missing")):
        lines[2500] = f"1,{cell}"
        write("t.csv", "\n".join(lines))
        assert f"line 2501, column b: {words} value" in refused("features t.csv")
    X = np.zeros((700_000, 3), dtype="f4")
    X[650_000, 1] = np.nan
    assert "row 650001, column 2: missing value" in refused("features", write("t.npy", X))


@pytest.mark.parametrize(
    "names",
    [
        ["b, c", "d:e", 'f "g"', "'h'", "-i", "", "j  k", "ö", "$x", "l\\m", "n", "o"],
        ["-i", "b"],
        ["a\x1b[2J", "it's", "new\nline", "\u202eright", "back\\n"],
        [""],
    ],
)
@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="the names are quoted for a shell")
def test_all_columns_of_words_can_be_excluded_as_they_are_named(refused, ran, names):
    with open("t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["x", *names, "y"]] + [[0, *["red"] * len(names), 1]] * 3)
    columns = ["--columns", "x:y"] if "" in names else []
    message = refused("features t.csv", *columns)
    advice = re.search(r"; without (?:it|them): (--exclude.*); smallvar cluster takes", message)[1]
    shell = subprocess.run(
        ["/bin/bash", "-c", f"printf '%s\\0' {advice}"],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8"},
    )
    argv = shell.stdout.decode().split("\0")[:-1]
    assert ran("t.csv --scale", *columns, *argv)["data"] == "t.csv, 2 columns: x, y"


def test_columns_that_begin_with_a_gap_are_named_too(refused):
    write("t.csv", "a,b,c,d\n1,red,,\n2,blue,,3\n4,red,small,5\n")
    message = refused("t.csv --scale")
    assert "line 2: column b ('red') not numeric; choose others with --columns or" in message
    assert "; without it: --exclude b,c; without --scale, words and gaps are taken" in message
    write("t.csv", "a,b,b\n1,red,blue\n")
    message = refused("t.csv --guess 1")
    assert "; without them: --exclude b,b.1; without --guess, words and gaps are taken" in message


def test_files_that_cannot_be_read(refused, no_fit, monkeypatch):
    message = (
        "must end in .csv, .tsv, .txt, .dat, .xlsx, .npy or .parquet, or in .gz after .csv, .tsv, "
    )
    for name in ("t.doc", "feature", "t.gz", "t.npy.gz", "t.csv.gz.gz"):
        assert f"{name}: the name {message}" in refused(write(name, "1,2\n"))
    for name in ("t.npy", "t.parquet", "t.tsv"):
        assert f"{name} is empty" in refused(write(name, ""))
    monkeypatch.setitem(sys.modules, "pandas", None)
    message = refused(write("t.parquet", "PAR1"))
    assert "needs pandas and pyarrow: pip install 'smallvar[parquet]'" in message


@pytest.mark.skipif(AS_ROOT or os.name != "posix", reason="nothing is closed to root")
def test_files_without_permission(refused, no_fit):
    Path("blobs.csv").chmod(0)
    assert "blobs.csv: Permission denied" in refused("blobs.csv")
    Path("closed").mkdir(mode=0o500)
    assert "Permission denied" in refused("--out closed/l.csv")


def test_memory_that_does_not_suffice(refused, monkeypatch):
    def fail(*args):
        raise MemoryError

    monkeypatch.setattr(DPMeans, "fit", fail)
    assert "not enough memory to fit" in refused("blobs.csv")
    monkeypatch.setattr(_table, "read_text", fail)
    assert "blobs.csv: not enough memory\n" in refused("blobs.csv")
    monkeypatch.setattr(_table, "read_npy", fail)
    assert "not enough memory; --batch-size reads it by batches" in refused("iris.npy")


# Reading text


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("plain.csv", "1,2.5\n3,-4e1\n", ""),
        ("header.csv", "a,b\n1,2.5\n3,-4e1\n", ""),
        ("no_newline.csv", "a,b\n1,2.5\n3,-4e1", ""),
        ("semicolon.csv", "a;b\n1;2.5\n3;-4e1\n", ""),
        ("comma_in_names.csv", "a, of 1;b, of 1\n1;2.5\n3;-4e1\n", ""),
        ("tab.csv", "a\tb\n1\t2.5\n3\t-4e1\n", ""),
        ("tab.tsv", "a\tb\n1\t2.5\n3\t-4e1\n", ""),
        ("SUFFIX.CSV", "a,b\n1,2.5\n3,-4e1\n", ""),
        ("bom.csv", "\ufeff1,2.5\n3,-4e1\n", ""),
        ("crlf.csv", "a,b\r\n1,2.5\r\n3,-4e1\r\n", ""),
        ("blank_lines.csv", "\n\na,b\n\n1,2.5\n   \n3,-4e1\n\n\n", ""),
        ("quoted.csv", '"a,1","b"\n"1","2.5"\n"3","-4e1"\n', ""),
        ("line_break.csv", '"a\nb",c\n1,2.5\n3,-4e1\n', ""),
        ("spaces.csv", " a , b \n 1 , 2.5 \n 3 , -4e1 \n", ""),
        ("commas.txt", "a,b\n1,2.5\n3,-4e1\n", ""),
        ("tabs.dat", "a\tb\n1\t2.5\n3\t-4e1\n", ""),
        ("spaces.txt", "1 2.5\n3 -4e1\n", ""),
        ("aligned.txt", "   a     b\n\n   1   2.5\n   3  -4e1  \n", ""),
        ("spaces.csv", "a b\n1 2.5\n3 -4e1\n", ""),
        ("spaces_and_tabs.dat", "a \t b\n1 2.5\n3\t  -4e1\n", ""),
        ("quoted.txt", '"a b" "c"\n"1" 2.5\n3 "-4e1"\n', ""),
        ("crlf.txt", "a b\r\n1  2.5\r\n3  -4e1\r\n", ""),
        ("some_numbers_missing_in_header.csv", "a,-\n1,2.5\n3,-4e1\n", ""),
        ("semicolon.csv", "a;b\n1;2,5\n3;-4e1\n", "--decimal ,"),
        ("no_header.csv", "1,0;2,5\n3;-40,0\n", "--decimal ,"),
        ("comma_in_names.csv", "a, of 1;b, of 1\n1;2,5\n3,0;-4e1\n", "--decimal ,"),
        ("tab.tsv", "a\tb\n1\t2,5\n3\t-4e1\n", "--decimal ,"),
        ("tab.csv", "1,0\t2,5\n3,0\t-40,0\n", "--decimal ,"),
        ("spaces.txt", "1,0  2,5\n3,0  -40,0\n", "--decimal ,"),
        ("quoted.csv", '"1,0";"2,5"\n"3,0";"-40,0"\n', "--decimal ,"),
        ("t.csv", "Größe,Maß\n1,2.5\n3,-4e1\n".encode("cp1252"), "--encoding cp1252"),
        ("t.csv", "Größe,Maß\n1,2.5\n3,-4e1\n".encode("latin-1"), "--encoding latin-1"),
        ("t.csv", "Größe,Maß\n1,2.5\n3,-4e1\n".encode("utf-16"), "--encoding utf-16"),
        ("t.csv", "Größe,Maß\n1,2.5\n3,-4e1\n", "--encoding utf-8"),
        ("t.csv", "\ufeffGröße,Maß\n1,2.5\n3,-4e1\n", "--encoding utf-8"),
        ("t.csv", "\ufeffGröße,Maß\n1,2.5\n3,-4e1\n", "--encoding UTF_8"),
        ("t.csv.gz", "a,b\n1,2.5\n3,-4e1\n", ""),
        ("t.tsv.gz", "a\tb\n1\t2.5\n3\t-4e1\n", ""),
        ("t.TXT.GZ", "a b\n1 2.5\n3 -4e1\n", ""),
        ("t.dat.gz", "a b\n1 2.5\n3 -4e1\n", ""),
    ],
)
def test_text_tables(ran, fitted, name, content, options):
    report = ran(f"{write(name, content)} {options}")
    (_, X) = fitted[0]
    assert X.dtype == np.float64
    assert np.array_equal(X, [[1.0, 2.5], [3.0, -40.0]])
    assert report["data"].startswith(f"{name}, 2 columns: ")
    if "encoding" in options:
        assert report["data"].endswith(": Größe, Maß")


def test_text_is_read_exactly(run, fitted):
    X = np.random.default_rng(0).lognormal(sigma=20, size=(500, 7))
    run("features --n-components 1 --starts 1", write("t.csv", cli_tables.as_csv(X)))
    assert np.array_equal(fitted[0][1], X)


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
        ("id,1990,1991\n1,2.5,3\n2,1,4\n", 2, "3 columns: id, 1990, 1991"),
        ("id,2001,1999\n1,2.5,\n2,1,4\n", 2, "3 columns: id, 2001, 1999"),
        ("land,1990,1991\nA,1700.5,3\nB,1800,1850\nC,1,4\n", 3, "3 columns: land, 1990, 1991"),
        ("name,1990,1991\nA,1992,1993\n", 2, "3 columns: 1, 2, 3"),  # born and died
        ("1990,1991,1992\n1993,1994,1995\n", 2, "3 columns: 1, 2, 3"),
        ("2000\n5\n7\n", 3, "1 column: 1"),
        ("1,2,3\n2,3,4\n9,7,5\n", 3, "3 columns: 1, 2, 3"),
        ("5.1,setosa\n4.9,setosa\n", 2, "2 columns: 1, 2"),
        ("2024-01-31,1\n2024-02-29,2\n2024-01-31,3\n", 3, "2 columns: 1, 2"),
        ("2024-01-31,red\n2024-02-29,blue\n2024-01-31,red\n", 3, "2 columns: 1, 2"),
        ("kind,2024-01-31,2024-02-29\nred,1,2\nred,2,2\n", 2, "3 columns: kind, 2024-01-31"),
        ('"a\nb",c\n1,2\n3,4\n', 2, r"2 columns: a\nb, c"),  # in one line
        ("نمی\u200cبینم,größe\u00a0m\n1,2\n3,4\n", 2, "2 columns: نمی\u200cبینم, größe\u00a0m"),
    ],
)
def test_header_is_detected(ran, text, n, columns):
    report = ran(write("t.csv", text))
    assert report["n"] == str(n)
    assert report["data"].startswith(f"t.csv, {columns}")
    given = ran("t.csv", "--header" if n < len(text.splitlines()) else "--no-header")
    assert (given["n"], given["data"]) == (report["n"], report["data"])


@pytest.mark.parametrize(
    ("text", "n", "told"),
    [
        # one year, whole numbers that are no years, years alone, words of the header in the rows
        ("name,1990\nA,850\nA,900\n", 2, "line 1 is taken as the header, though it holds numbers"),
        ("id,5,7\n1,2.5,3\n2,1,4\n", 2, "line 1 is taken as the header, though it holds numbers"),
        ("\n1990,1991,1992\n1,2,4\n", 1, "line 2 is taken as the header, though it holds numbers"),
        ("a,b\nc,b\nc,d\n", 2, "line 1 is taken as the header, though 'b' is in a row below, too"),
        ("1990,1991\n1,2\n", 2, "line 1 is taken as a row, though its numbers may be titles"),
        ("1,2,3\n7,9,2\n5,1,1\n", 3, "line 1 is taken as a row, though its numbers may be titles"),
    ],
)
def test_doubtful_headers_are_told(run, ran, text, n, told):
    code, out, err = run(write("t.csv", text))
    assert code == 0
    assert re.search(rf"^n +{n}$", out, re.M)
    is_header = "the header, " in told
    option, other = ("--no-header", "a row") if is_header else ("--header", "the header")
    assert err == f"smallvar: warning: t.csv, {told}; {option} takes it as {other}\n"
    if "id" not in text:  # which is a word in a column of numbers, if it is no title
        assert ran("t.csv", option)["n"] == str(n + 1 if is_header else n - 1)
    assert ran("t.csv", "--header" if is_header else "--no-header")["n"] == str(n)


YEARS_ABOVE = "1990,1991,1992\n1,4,5\n2,3,1\n"


@pytest.mark.parametrize(
    ("call", "text", "rows"),
    [
        ("--decimal ,", "1,5\n2,25\n", [[1.5], [2.25]]),
        ("--decimal ,", "x\n1,5\n2,25\n", [[1.5], [2.25]]),
        ("--exclude ''", ",a,b\n0,1,2\n1,3,4\n", [[1, 2], [3, 4]]),
        ("features --header --columns 1991 --lam 1", YEARS_ABOVE, [[4], [3]]),
        ("features --no-header --columns 2 --lam 1", YEARS_ABOVE, [[1991], [4], [3]]),
        ("track --header --time 1990 --lam 1", YEARS_ABOVE, [[4, 5], [3, 1]]),
        ("track --no-header --time 1 --lam 1", YEARS_ABOVE, [[1991, 1992], [4, 5], [3, 1]]),
    ],
)
def test_options_of_reading(ran, fitted, call, text, rows):
    ran(call, write("t.csv", text))
    assert np.array_equal(fitted[0][1], rows)


# What a terminal obeys

ODD = "a\x1b[2J\u202eb\tc\x9bd"
ODD_ESCAPED = r"a\x1b[2J\u202eb\tc\x9bd"


def test_control_characters_are_escaped(run):
    rows = "".join(f"{i},{i % 7},{i % 2}\n" for i in range(40))
    write("t.csv", f"{ODD},y,z\n{rows}")
    write("words.csv", f"{ODD},y,z\n{rows}red,1,\n")
    write(f"{ODD}.csv", f"x,y,z\n{rows}")
    for argv in (
        ["t.csv"],
        ["features", "t.csv"],
        ["track", "t.csv", "--time", "z"],
        ["track", "t.csv", "--time", ODD],
        ["words.csv", "--kinds", "y=poisson"],
        ["t.csv", "--kinds", f"{ODD}=poisson"],
        ["t.csv", "--columns", "w"],
        ["words.csv", "--scale"],
        ["cluster", f"{ODD}.csv"],
        ["cluster", f"{ODD}.csv", "--out", f"{ODD}-out.csv"],
        ["cluster", f"./{ODD}.txt"],
        ["t.csv", f"--{ODD}"],
        ["t.csv", "--lam", ODD],
    ):
        code, out, err = run(*argv)
        assert code == 2 or out
        assert ODD_ESCAPED in out + err, argv
        assert all(char.isprintable() or char == "\n" for char in out + err), argv


def test_names_the_terminal_cannot_show():
    write("länge.csv", "größe,x\n1,2\n3,4\n")
    done = python("-m", "smallvar", "länge.csv", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\xf6\\xdfe" in done.stdout


def test_text_in_another_encoding_is_refused_with_the_remedy(refused, ran, no_fit):
    write("t.csv", "x,y\n1,2\n3,4 Größe\n".encode("cp1252"))
    for call in ("features t.csv", "t.csv", "t.csv --columns x"):
        message = refused(call)
        assert "t.csv is not a text file in UTF-8: byte 0xf6 in line 3; --encoding" in message
        assert "--encoding cp1252 (western European) reads '3,4 Größe' there" in message
    write("t.csv", "Größe,y\n1,2\n3,4\n".encode("utf-16"))
    assert "perhaps in UTF-16: try --encoding utf-16" in refused("t.csv")
    write("t.csv.gz", gzip.compress(b"x\n" + b"1\n" * 18_000 + b"\xa7\n"))
    assert "byte 0xa7 in line 18002; " in refused("features t.csv.gz")


@pytest.mark.parametrize("text", ['a;b\n1;"12,000"\n', "a;b\n1;2\n1;12,000\n"])
def test_thousands_or_decimals(refused, no_fit, text):
    message = refused(write("t.csv", text))
    assert "'12,000', which may be 12000 or 12.000: give --thousands , or --decimal ," in message


def test_bad_compressed_text(refused, no_fit):
    whole = gzip.compress(cli_tables.FILES["blobs.csv"])
    for content, message in [
        (whole[: len(whole) // 2], "t.csv.gz: Compressed file ended"),
        (whole[:60] + b"abcdefghijk" + whole[71:], "cannot read t.csv.gz: Error -3"),
        (b"1,2\n", "t.csv.gz: Not a gzipped file"),
        (whole + b"and more", "smallvar: t.csv.gz has other bytes after its compressed data\n"),
        (gzip.compress(b""), "t.csv.gz is empty"),
        (gzip.compress(b"a,b\n1,2\n3,inf\n"), "t.csv.gz, line 3, column b: infinite value"),
    ]:
        assert message in refused(write("t.csv.gz", content))


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
@pytest.mark.parametrize(
    "call", ["--lam 60 -", "--lam 60", "features --lam 60", "features --path -"]
)
@pytest.mark.parametrize("as_file", [True, False])
def test_text_from_standard_input(ran, stdin, call, as_file):
    stdin(cli_tables.FILES["blobs.csv"], as_file)
    report = ran(call)
    assert report["data"] == "standard input, 3 columns: x, y, z"
    assert report["n"] == "60"


@POSIX
def test_other_kinds_from_standard_input(ran, fitted, stdin):
    X = np.arange(6.0).reshape(3, 2)
    text = b"a b\n0 1\n2 3\n4 5\n"
    for content in (as_npy(X), text, gzip.compress(text), as_parquet(X)):
        stdin(content)
        assert ran("-")["data"].startswith("standard input, 2 columns: ")
        assert np.array_equal(fitted[-1][1], X)


@POSIX
def test_bad_standard_input(refused, no_fit, stdin, monkeypatch):
    for content, call, message in [
        (b"", "-", "standard input is empty"),
        (b"a,b\n1,2\n3,inf\n", "-", "standard input, line 3, column b: infinite value"),
        (b"a,b\n1,2\n", "--columns c", "--columns c: standard input has no column 'c'"),
        (b"t,x\n1,2\n", "track", "--time COLUMN is missing"),
        (b"\x93NUMPY...", "-", "standard input: "),
    ]:
        stdin(content)
        assert message in refused(call)
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in refused("-")


@POSIX
def test_redirected_data_are_not_overwritten(refused, no_fit, stdin):
    stdin(b"a,b\n1,2\n", as_file=True)
    os.symlink("redirected", "out.csv")
    assert "would overwrite the data" in refused("--out out.csv")


@POSIX
def test_standard_input_gives_way_to_data(ran, stdin):
    stdin(b"a,b\n1,2\n")
    assert ran("blobs.csv --lam 60")["n"] == "60"
    assert sys.stdin.read() == "a,b\n1,2\n"


@POSIX
def test_without_data_in_standard_input_there_is_a_stand_in(ran, stdin, monkeypatch):
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
        done = subprocess.run(
            [sys.executable, "-m", "smallvar", "--out", "-"],
            stdin=file,
            capture_output=True,
            timeout=120,
        )
    assert done.returncode == 0
    header, *lines = done.stdout.decode().splitlines()
    assert header == "x,y,z,cluster,probability"
    labels = [int(line.split(",")[3]) for line in lines]
    assert np.array_equal(labels, DPMeans(random_state=0).fit(BLOBS).labels_)
    assert re.search(r"^data +standard input, 3 columns: x, y, z$", done.stderr.decode(), re.M)


# Columns


NUMBERS = np.arange(12.0).reshape(3, 4) + 0.5


@pytest.mark.parametrize("suffix", ["csv", "npy", "parquet"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--columns 1", [0]),
        ("--columns 3,1", [2, 0]),
        ("--columns 2:3", [1, 2]),
        ("--columns 2:", [1, 2, 3]),
        ("--exclude 2", [0, 2, 3]),
        ("--exclude ' 4, 1 '", [1, 2]),
        ("--exclude 2:3", [0, 3]),
        ("--exclude 2:", [0]),
        ("--columns 4,3,1 --exclude 3", [3, 0]),
        ("--columns 1:3 --exclude 3:4", [0, 1]),
    ],
)
def test_columns_by_position(ran, fitted, suffix, options, expected):
    if suffix == "parquet":
        write("t.parquet", as_parquet(NUMBERS, list("1234")))
    else:
        write(f"t.{suffix}", NUMBERS if suffix == "npy" else cli_tables.as_csv(NUMBERS))
    report = ran(f"t.{suffix} {options}")
    assert np.array_equal(fitted[0][1], NUMBERS[:, expected])
    assert report["data"].endswith(": " + ", ".join(str(i + 1) for i in expected))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--exclude word,", [0, 1, 2, 3, 4, 7, 8]),
        ("--columns a", [0]),
        ("--columns b", [1]),
        ("--columns b.3,a", [4, 0]),
        ("--columns ' a , b '", [0, 1]),
        ("--columns :b.2", [0, 1, 2]),
        ("--columns b.2:b.3", [2, 3, 4]),
        ("--columns '\"x,y\",p:q'", [7, 8]),
        ("--columns b.3: --exclude word", [4, 5, 7, 8]),
        ("--exclude 'word,,b,\"x,y\"'", [0, 2, 3, 4, 8]),
        ("features --exclude word, --lam 1", [0, 1, 2, 3, 4, 7, 8]),
        ("track --time a --exclude a,word, --lam 1", [1, 2, 3, 4, 7, 8]),
        ("track --time ' a ' --columns b.1,b --lam 1", [3, 1]),
        ("track --time a --columns a:b.2 --lam 1", [0, 1, 2]),
        ("track --time b --columns a,b.1 --lam 1", [0, 3]),
    ],
)
def test_columns_by_name(run, refused, fitted, options, expected):
    """Columns of one name are told apart as in pandas, and a warning says how."""
    names = ["a", "b", "b.2", "b.1", "b.3", "", "word", "x,y", "p:q"]
    row = "{}0,{}1,{}2,{}3,{}4,{}5,w,{}7,{}8\n"
    write("t.csv", 'a,b,b,b.1,b,,word,"x,y",p:q\n' + row.replace("{}", "") + row.replace("{}", "1"))
    code, out, err = run(options, "t.csv")
    assert code == 0
    assert np.array_equal(fitted[0][1], np.array([expected, np.add(expected, 10)]))
    titles = _columns.columns_in_short([names[j] for j in expected])
    assert f"t.csv, {titles}\n" in out
    assert err == (
        "smallvar: warning: t.csv has 3 columns 'b': 'b' is the first, the others are called "
        "'b.2', 'b.3'\n"
    )
    assert "column 6 has no name in the header" in refused("t.csv")


# Missing values


@pytest.mark.parametrize(
    ("text", "options", "X", "dropped"),
    [
        (None, "--exclude word", [[1, 2], [5, 6], [9, 8]], "3 rows"),
        (None, "--columns a", [[1], [4], [5], [7], [9]], "1 row"),
        ("a;b\n1,5;2\n?;3\n", "--decimal ,", [[1.5, 2]], "1 row"),
        ("a\n1\n2\n", "", [[1], [2]], "0 rows"),
        ("x\n1\n\n3\n\n", "", [[1], [3]], "1 row"),
        ('x\n""\n1\n-\n3\n', "", [[1], [3]], "2 rows"),
        ("a,b\n1,2\n,4\n1,3\n", "--path", [[1, 2], [1, 3]], "1 row"),
    ],
)
def test_rows_with_missing_values_are_dropped(ran, fitted, text, options, X, dropped):
    if text is not None:
        write("gaps.csv", text)
    report = ran(f"gaps.csv {options} --drop-missing --out l.csv")
    assert np.array_equal(fitted[0][1], X)
    assert (report["n"], report["dropped"]) == (str(len(X)), f"{dropped} with missing values")
    labels = read_out("l.csv")[1]
    assert (labels == -1).sum() == int(dropped.split()[0])
    assert len(labels) == len(X) + (labels == -1).sum()


def test_labels_of_dropped_rows(ran):
    i, j, k = DPMeans(lam=5.0).fit([[1, 2], [5, 6], [9, 8]]).labels_
    for suffix in ("csv", "npy", "parquet"):
        ran(f"gaps.csv --exclude word --drop-missing --lam 5 --out l.{suffix}")
        assert list(read_out(f"l.{suffix}")[1]) == [i, -1, -1, j, -1, k]
    lines = Path("l.csv").read_text().splitlines()
    rows = Path("gaps.csv").read_text().splitlines()
    ends = ["cluster,probability"]
    ends += ["," if label is None else f"{label},1.0000" for label in (i, None, None, j, None, k)]
    assert lines == [f"{row},{end}" for row, end in zip(rows, ends, strict=True)]
    assert np.load("l.npy").dtype.kind == "i"
    pd = pytest.importorskip("pandas")
    assert pd.read_csv("l.csv")["cluster"].isna().sum() == 3  # no row is skipped
    assert str(pd.read_parquet("l.parquet")["cluster"].dtype) == "Int64"


@pytest.mark.parametrize("k", [1, 2])
def test_features_of_dropped_rows(ran, k):
    call = f"features --drop-missing --n-components {k} t.csv"
    write("t.csv", "a,b\n9,0\n,1\n0,9\n9,0\n")
    assert ran(call, "--out", "z.npy")["dropped"] == "1 row with missing values"
    Z = np.load("z.npy")
    assert Z.shape == (4, k)
    assert (Z[1] == -1).all() and (np.delete(Z, 1, axis=0) >= 0).all()
    for suffix in ("csv", "parquet"):
        ran(call, "--out", f"z.{suffix}")
        titles, rows = read_out(f"z.{suffix}")
        assert titles == [f"feature_{i}" for i in range(k)]
        assert np.array_equal(rows, Z)
    assert Path("z.csv").read_text().splitlines()[2] == ",1" + "," * k
    dropped = ran("features t.csv --drop-missing --path 2")["dropped"]
    assert dropped == "1 row with missing values"


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_gaps_in_arrays(ran, refused, fitted, dtype):
    X = np.array([[1, 2], [np.nan, 3], [4, 5]], dtype=dtype)
    write("t.npy", X)
    report = ran("t.npy --drop-missing --lam 1")
    assert report["dropped"] == "1 row with missing values"
    assert fitted[0][1].dtype == X.dtype
    assert np.array_equal(fitted[0][1], X[[0, 2]])
    write("t.npy", np.array([[np.inf, 1]]))
    assert "row 1, column 1: infinite" in refused("t.npy --drop-missing")
    pd = pytest.importorskip("pandas")
    write("t.parquet", as_parquet({"a": pd.array([1, None, 4], dtype="Int64"), "b": X[:, 1]}))
    ran("t.parquet --drop-missing --lam 1")
    assert np.array_equal(fitted[1][1], X[[0, 2]])


@pytest.mark.parametrize("times", [["2024-01-31", "2024-02-02"], ["1", "3"]])
def test_missing_times(ran, times):
    rows = [",1", f"{times[1]},2", f"{times[0]},3", "NA,4", f"{times[0]},"]
    write("t.csv", "t,x\n" + "\n".join(rows))
    call = "track --time t --lam 9 --drop-missing --out c.csv"
    report = ran(call, "t.csv")
    assert report["steps"] == f"2 (t from {times[0]} to {times[1]})"
    assert (report["n"], report["dropped"]) == ("2", "3 rows with missing values")
    lines = zip(rows, ["", 0, 0, "", ""], strict=True)
    expected = ["t,x,cluster", *(f"{row},{label}" for row, label in lines)]
    assert Path("c.csv").read_text().splitlines() == expected
    pd = pytest.importorskip("pandas")
    moments = pd.Series([None, *times, None, times[0]])
    moments = pd.to_datetime(moments) if "-" in times[0] else moments.astype(float)
    write("t.parquet", as_parquet({"t": moments, "x": [1, 2, 3, 4, None]}))
    assert ran(call, "t.parquet")["steps"] == report["steps"]


# Reading arrays


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f4", "i2", "u1", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_is_mapped_not_read(ran, fitted, dtype, order):
    X = np.asarray(np.random.default_rng(0).integers(0, 2, (50, 3)), dtype=dtype, order=order)
    report = ran("--lam 0.5", write("t.npy", X))
    mapped = fitted[0][1]
    assert isinstance(mapped, np.memmap)
    assert not mapped.flags.writeable
    assert mapped.dtype == X.dtype
    assert np.array_equal(mapped, X)
    assert report["data"] == "t.npy, 3 columns: 1, 2, 3"
    assert int(report["K"]) == len(np.unique(X, axis=0))


def test_parquet(ran, refused, fitted):
    pd = pytest.importorskip("pandas")
    frame = {"a": [1.0, 2.0], "b": [5, 6], "c": ["u", "v"], "d": [True, False]}
    write("t.parquet", as_parquet(frame))
    assert "t.parquet: column c (" in refused("features t.parquet")
    report = ran("t.parquet --columns b,d,a")
    assert np.array_equal(fitted[-1][1], [[5, 1, 1], [6, 0, 2]])
    assert report["data"] == "t.parquet, 3 columns: b, d, a"

    ran(write("t.parquet", as_parquet({"a": np.array([1, 2], dtype="f4")})))
    assert fitted[-1][1].dtype == np.float32

    content = as_parquet({"a": pd.array([1, None], dtype="Int64")})
    assert "row 2, column a: missing value" in refused("features", write("t.parquet", content))
    assert "t.parquet: " in refused(write("t.parquet", content[:-4]))


# Scale


def test_scaled_columns(ran, fitted):
    ran("uneven.csv --scale --guess 2")
    Z = fitted[0][1]
    X = UNEVEN[:, :2]
    assert Z[:, :2] == pytest.approx((X - X.mean(axis=0)) / X.std(axis=0))
    assert np.abs(Z[:, 2]).max() < 1e-12
    lam = ran("track stream.csv --time t --scale --guess 3 --verbose")["lam"]
    assert float(lam.split()[0]) < 1
    assert "scaled" not in ran("uneven.csv --columns narrow")


@pytest.mark.parametrize("dtype", ["f4", "i8"])
def test_scaled_arrays_far_from_zero(ran, fitted, dtype):
    X = np.random.default_rng(0).integers(0, 100, (50, 3)).astype(dtype) + np.array(10_000, dtype)
    ran("--scale", write("t.npy", X))
    Z = fitted[0][1]
    assert Z.dtype == (np.float32 if dtype == "f4" else np.float64)
    assert pytest.approx((X - X.mean(axis=0)) / X.std(axis=0), abs=1e-3) == Z
    assert Z.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-3)


@pytest.mark.parametrize("command", ["", "track --time same"])
def test_warning_of_uneven_columns(run, command):
    call = f"{command} uneven.csv --columns wide:same"
    code, out, err = run(f"{call} --lam 1e4")
    assert code == 0
    assert re.match(r"\d clusters", out)
    assert err == (
        "smallvar: warning: column wide makes up 99.9% of the squared distances between rows, and "
        "the other column hardly counts; --scale evens them out\n"
    )
    assert run(f"{call} --scale --lam 100")[2] == ""
    assert run(f"{command} uneven.csv --columns narrow:same --lam 100")[2] == ""


@pytest.mark.parametrize(
    ("n", "factor", "warned"), [(200, 90, False), (200, 120, True), (250_000, 120, True)]
)
def test_uneven_columns_of_an_array(run, n, factor, warned):
    x = np.random.default_rng(0).normal(size=n).astype("f4")
    X = np.column_stack([x, factor * (0.5 * x + x[::-1])])
    err = run("--lam 1e10", write("t.npy", X))[2]
    assert ("column 2 makes up 99.9% of the squared distances" in err) == warned
    assert bool(err) == warned
    assert run("features t.npy --lam 1e12 --starts 1")[2] == ""


def test_tracks_of_scaled_columns(ran):
    ran("track stream.csv --time t --scale --lam 0.5 --tracks tracks.csv")
    scaler = StandardScaler().fit(X_OF_STREAM)
    model = DynamicMeans(lam=0.5, random_state=0)
    model.fit(scaler.transform(X_OF_STREAM), times=TIMES_OF_STREAM)
    rows = np.loadtxt("tracks.csv", delimiter=",", skiprows=1)
    for cluster, track in model.tracks_.items():
        written = rows[rows[:, 1] == cluster]
        assert written[:, 0] == pytest.approx(model.times_[track[:, 0].astype(int)])
        assert written[:, 2:] == pytest.approx(scaler.mean_ + track[:, 1:] * scaler.scale_)


# Writing


def test_nothing_is_written_unless_asked_for(ran, folder):
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
    "call",
    [
        "blobs.csv --lam 60",
        "features sums.csv --n-components 3",
        "track stream.csv --time t --lam 4",
        "features sums.csv --lam 1e9",  # without features
    ],
)
def test_results_in_other_formats(ran, call):
    ran(call, "--out", "l.csv")
    titles, expected = read_out("l.csv")
    ran(call, "--out", "l.NPY")
    assert np.array_equal(np.load("l.NPY"), expected)
    pytest.importorskip("pyarrow")
    ran(call, "--out", "l.parquet")
    frame = pytest.importorskip("pandas").read_parquet("l.parquet")
    assert list(frame.columns) == read_csv("l.csv")[0]
    assert all(frame[title].dtype.kind == "i" for title in titles)
    assert np.array_equal(frame[titles].to_numpy().reshape(expected.shape), expected)


def test_results_of_many_rows(ran):
    X = np.random.default_rng(0).integers(0, 5, (250_001, 1)).astype("f4") * 10
    ran("--lam 1 --out l.csv", write("t.npy", X))
    assert np.array_equal(read_out("l.csv")[1], DPMeans(lam=1.0).fit(X).labels_)
    Z = np.random.default_rng(0).integers(0, 2, (250_001, 3), dtype=np.int32)
    table = SimpleNamespace(kept=None, origin=None)
    for k in (1, 3):
        titles = [f"feature_{i}" for i in range(k)]
        _table_out.write_out(SimpleNamespace(out="z.csv"), table, titles, Z[:, :k])
        assert read_out("z.csv")[0] == titles
        assert np.array_equal(read_out("z.csv")[1], Z[:, :k])


@pytest.mark.parametrize(
    "call",
    [
        "blobs.csv --lam 60",
        "blobs.csv --path 2",
        "features sums.csv --lam 20 --verbose",
        "track stream.csv --time t --lam 4",
        "--lam 1e6",  # what stands in for data is no label, either
    ],
)
def test_labels_on_standard_output(run, call):
    _, report, _ = run(call, "--out", "expected.csv")
    code, out, err = run(call, "--out", "-")
    assert (code, out) == (0, Path("expected.csv").read_text())
    assert re.search(r"^(labels|assignments) +standard output$", err, re.M)
    facts = r"^(?!seconds|labels|assignments).*"
    assert re.findall(facts, err, re.M) == re.findall(facts, report, re.M)
    code, out, err = run("blobs.csv --lam 60")  # the next report is where it was
    assert "sizes" in out or "clusters" in out
    assert err == ""


def test_results_without_features(ran):
    pytest.importorskip("matplotlib")
    ran("features zeros.npy --out z.csv --components a.csv --plot z.png")
    assert Path("z.csv").read_bytes() == b"\n\n\n\n"
    assert Path("a.csv").read_bytes() == b"1,2\n"
    assert Path("z.png").stat().st_size > 5000
    ran("features zeros.npy --path 2 --plot z.png")


def test_parquet_is_written_with_pandas(refused, no_fit, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = refused("blobs.csv --out labels.parquet")
    assert "needs pandas and pyarrow: pip install 'smallvar[parquet]'" in message


@pytest.mark.parametrize(
    ("call", "target"),
    [
        ("blobs.csv --out", "t.csv"),
        ("blobs.csv --plot", "t.png"),
        ("features blobs.csv --components", "t.csv"),
        ("track blobs.csv --time x --tracks", "t.csv"),
    ],
)
def test_targets_are_tried_before_the_fit(refused, no_fit, call, target):
    before = sorted(os.listdir())
    os.mkdir(f"folder-{target}")
    os.symlink("blobs.csv", f"data-{target}")
    os.symlink(os.devnull, f"null-{target}")
    option = call.split()[-1]
    for name, words in [
        (f"none/{target}", "there is no folder none"),
        (f"folder-{target}", "this is not a file that can be replaced"),
        (f"null-{target}", "this is not a file that can be replaced"),
        (f"data-{target}", "this would overwrite the data"),
        ("x" * 300 + target, "file name too long"),
    ]:
        assert refused(call, name).lower() == f"smallvar: {option} {name}: {words}\n".lower()
    for name in ("folder", "data", "null"):
        assert os.path.lexists(f"{name}-{target}")
    assert len(os.listdir()) == len(before) + 3
    assert Path("blobs.csv").read_bytes() == cli_tables.FILES["blobs.csv"]


@pytest.mark.parametrize(
    ("call", "options"),
    [
        ("blobs.csv --out link.csv --plot a.png", "--out and --plot"),
        ("features sums.csv --out z.csv --components z.csv", "--out and --components"),
        ("track stream.csv --time t --out z.csv --tracks z.csv", "--out and --tracks"),
    ],
)
def test_targets_differ(refused, no_fit, call, options):
    os.symlink(write("a.png", "old"), "link.csv")
    assert f"{options} both name " in refused(call)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize(
    ("call", "module", "writer"),
    [
        ("blobs.csv --out", _table_out, "write_text"),
        ("features sums.csv --components", _features, "write_rows"),
    ],
)
def test_no_file_is_left_half_written(
    run, monkeypatch, error, code, message, old, call, module, writer
):
    os.mkdir("results")
    if old:
        write("results/t.csv", "old")

    def write_half(file, *args):
        file.write(b"cluster\n0\n")
        raise error

    monkeypatch.setattr(module, writer, write_half)
    got, out, err = run(f"{call} results/t.csv")
    assert (got, out) == (code, "")
    assert re.fullmatch(rf"smallvar: .*{message}\n", err)
    assert os.listdir("results") == ["t.csv"] * old
    assert not old or Path("results/t.csv").read_text() == "old"


# Pictures


def table(n, d, k):
    """Points around k centers, as the command line would hand them to the picture."""
    rng = np.random.default_rng(n)
    X = rng.uniform(0, 100, (k, d))[rng.integers(0, k, n)] + rng.normal(size=(n, d))
    return as_table(X, [f"name {i}" for i in range(d)])


def as_table(X, titles, **more):
    """A table as the command line has it."""
    return _table.Table(np.array(X), titles, "$t_{.npy", **more)


def drawn(figure):
    """The figure, after all in it was drawn."""
    figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize("suffix", ["png", "PDF", "svg"])
@pytest.mark.parametrize(
    "call",
    [
        *("blobs.csv --columns x", "blobs.csv --columns x,y", "blobs.csv"),
        *("blobs.csv --path", "--path 2 blobs.csv", "blobs.csv --scale", "--lam 1e6"),
        *("features sums.csv --lam 20 --starts 2", "features sums.csv --path --starts 2"),
        "features sums.csv --lam 20 --starts 2 --shape 2x3",
        *("track stream.csv --time t --columns x --lam 4", "track stream.csv --time t --lam 4"),
        *("words.csv", "blobs.csv --kinds x=normal"),
        *("moons.npy --shapes --scale", "blobs.csv --shapes --scale"),
        "blobs.csv --shapes --columns x --n-clusters 2",
    ],
)
def test_pictures_are_written(ran, call, suffix):
    pytest.importorskip("matplotlib")
    assert ran(call, "--plot", f"picture.{suffix}")["picture"] == f"picture.{suffix}"
    picture = Path(f"picture.{suffix}").read_bytes()
    assert picture.startswith({"png": b"\x89PNG\r\n", "PDF": b"%PDF-", "svg": b"<?xml"}[suffix])
    assert len(picture) > 5000


@pytest.mark.parametrize(
    ("n", "d", "k", "model", "title"),
    [
        (1, 1, 1, DPMeans(lam=30.0), "K = 1, by lam = 30; 1 row"),
        (1, 5, 1, DPMeans(lam=30.0), "K = 1, by lam = 30; 1 row"),
        (300, 2, 3, DPMeans(lam=500.0), "K = 3, by lam = 500; 300 rows"),
        (300, 5, 50, DPMeans(lam=30.0), "K = 53, by lam = 30; 300 rows"),
        (60_000, 2, 3, DPMeans(lam=500.0), "K = 3, by lam = 500; 60,000 rows (50,000 drawn)"),
        (300, 2, 3, DPMeans(random_state=0), "K = 3, clear (0.98); 300 rows"),
        (300, 2, 3, DPMeans(n_clusters=2, random_state=0), "K = 2, as asked for; 300 rows"),
    ],
)
def test_pictures_of_clusters(n, d, k, model, title):
    pytest.importorskip("matplotlib")
    data = table(n, d, k)
    (axes,) = drawn(_picture.picture(data, model.fit(data.X))).axes
    assert axes.get_title() == f"{title}\n$t_{{.npy"
    points, centers = (np.asarray(marks.get_offsets()) for marks in axes.collections)
    assert len(points) == min(n, 50_000)
    assert len(centers) == model.n_clusters_
    if d < 3:
        assert axes.get_xlabel() == "name 0"
        assert np.isin(points[:, 0], data.X[:, 0]).all()


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("rows", [[True, False, True, True, False, True], [1e6] * 9])
def test_pictures_of_booleans_and_of_equal_rows(ran, d, rows):
    pytest.importorskip("matplotlib")
    write("t.npy", np.column_stack([rows] * d))
    ran("t.npy --plot picture.png")


@pytest.mark.parametrize("d", [1, 2, 3])
def test_pictures_of_scaled_columns(d):
    pytest.importorskip("matplotlib")
    data = table(300, d, 3)
    scaler = StandardScaler().fit(data.X)
    Z = scaler.transform(data.X)
    model = DPMeans(lam=2.0).fit(Z)
    (axes,) = drawn(_picture.picture(data, model, scaler)).axes
    points, centers = (np.asarray(marks.get_offsets()) for marks in axes.collections)
    assert axes.get_title().endswith("\n$t_{.npy, columns scaled")
    if d < 3:  # in the units of the data
        assert np.array_equal(np.sort(points[:, 0]), np.sort(data.X[:, 0]))
        means = scaler.inverse_transform(model.cluster_centers_)
        assert centers[:, :d] == pytest.approx(means, rel=1e-6)
    else:
        assert axes.get_xlabel().startswith("direction that separates the")
        # clusters have variance 1 along the axes, and their centers are the means of their points
        assert points.mean(axis=0) == pytest.approx(
            np.bincount(model.labels_) @ centers / len(Z), abs=1e-9
        )


def test_picture_of_the_path_of_clusters():
    pytest.importorskip("matplotlib")
    path = smallvar.cluster_path(IRIS, random_state=0)
    choice = _choice.Choice(path, None)
    data = as_table(IRIS, list("abcd"))
    above, middle, below = drawn(_picture.merge_path_picture(data, choice)).axes
    for axes, values in ((above, path.criterion - path.criterion.min()), (middle, path.inertia)):
        assert np.array_equal(axes.lines[0].get_xydata(), np.c_[path.n_clusters, values])
    for axes in (above, middle):
        (ring,) = [marks for marks in axes.collections if marks.get_label() == "K = 2, chosen"]
        assert ring.get_offsets()[0][0] == 2
    ((x, low), (_, high)) = below.collections[1].get_segments()[0]
    assert (x, low, high) == (2, path.lam_low[1], path.lam_high[1])
    (tie,) = above.patches
    assert tie.get_label() == "about as good"
    assert above.get_title() == "K = 2, clear (0.93)\n$t_{.npy"
    above = _picture.merge_path_picture(data, choice, scaler=object()).axes[0]
    assert above.get_title().endswith("\n$t_{.npy, columns scaled")


@pytest.mark.parametrize("X", [np.ones((5, 2)), [[0.0, 1.0]], [[0.0, 1.0], [5.0, 2.0]]])
def test_picture_of_a_path_of_few_rows(X):
    pytest.importorskip("matplotlib")
    choice = _choice.Choice(smallvar.cluster_path(X, random_state=0), None)
    figure = drawn(_picture.merge_path_picture(as_table(X, ["a", "b"]), choice))
    assert "K = 1, too few distinct rows" in figure.axes[0].get_title()
    ticks = figure.axes[2].get_xticks()
    assert np.array_equal(ticks, np.round(ticks))


@pytest.mark.parametrize(
    ("command", "noun"),
    [
        ("--lam 60", "clusters"),
        ("--path", "path"),
        ("features --lam 20 --starts 1", "features"),
        ("features --path --starts 1", "path"),
        ("track --time x --lam 9", "tracks"),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.x.CSV.gz", "a\x1b[2J $x^{$.csv"])
def test_picture_beside_the_data(run, command, noun, name):
    """matplotlib has no letters for control characters, and would take names for formulas."""
    pytest.importorskip("matplotlib")
    os.mkdir("folder")
    content = cli_tables.FILES["blobs.csv"].replace(b"y", b"$y$\x1b", 1)
    write(f"folder/{name}", gzip.compress(content) if name.endswith(".gz") else content)
    picture = Path("folder", f"{re.split('[.](?:csv|CSV)', name)[0]}-{noun}.png")
    code, out, err = run(command, f"folder/{name}", "--plot")
    assert code == 0
    assert err == "" or ("track" in command and "this is one record" in err)
    assert f"{picture}\n".replace("\x1b", r"\x1b") in out
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    picture.write_bytes(picture.read_bytes() + b"old")
    assert run(command, "--plot", f"folder/{name}")[0] == 0  # and again: it is ours
    assert not picture.read_bytes().endswith(b"old")


def test_picture_beside_no_file(run):
    pytest.importorskip("matplotlib")
    assert "smallvar-clusters.png" in run("--lam 1e6 --plot")[1]
    assert os.path.exists("smallvar-clusters.png")


def test_pictures_of_others_are_not_replaced_unless_named(run, refused):
    pytest.importorskip("matplotlib")
    picture = Path("blobs-clusters.png")
    for content in (b"photo", b"", b"\x89PNG\r\n\x1a\n" + b"tEXtSoftware\0Matplotlib"):
        picture.write_bytes(content)
        message = refused("blobs.csv --plot")
        assert f"{picture} is there, and no picture of smallvar; name another" in message
        assert picture.read_bytes() == content
    assert run("blobs.csv --plot", picture)[0] == 0
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")


def test_picture_without_matplotlib(refused, no_fit, monkeypatch):
    for module in ("matplotlib", "matplotlib.colors", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    assert "pip install matplotlib" in refused("blobs.csv --plot picture.png")


# Pictures of features


def feature_model(k, d, n=60):
    """K features of d columns, some of them shared, as the command line would have them."""
    rng = np.random.default_rng(k)
    X = (rng.random((n, max(k, 1))) < 0.3) @ rng.normal(size=(max(k, 1), d))
    model = KFeatures(k, n_init=1, random_state=0).fit(X)
    return as_table(X, [f"name {i}" for i in range(d)]), model


@pytest.mark.parametrize(("d", "shape"), [(4, None), (60, None), (12, (3, 4))])
def test_every_feature_is_drawn(d, shape):
    pytest.importorskip("matplotlib")
    data, model = feature_model(5, d)
    figure = drawn(_picture.feature_picture(data, model, shape))
    *panels, last = [axes.get_title() for axes in figure.get_axes() if axes.get_title()]
    users = model.assignments_.sum(axis=0)
    assert panels == [f"{i}: {n} row{'' if n == 1 else 's'}" for i, n in enumerate(users)]
    assert last == "which row has which feature"
    share = 1 - model.objective_ / (data.X**2).sum()
    title = f"5 features, explaining {share:.1%} of the sum of squares\n$t_{{.npy: 60 rows"
    assert figure.get_suptitle() == title


@pytest.mark.long
def test_of_many_features_and_rows_some_are_drawn():
    pytest.importorskip("matplotlib")
    data, model = feature_model(41, 3, n=1000)
    model = BPMeans(lam=1e-3, init=model.assignments_, max_features=41).fit(data.X)
    figure = drawn(_picture.feature_picture(data, model, None))
    *panels, last = [axes for axes in figure.get_axes() if axes.get_title()]
    users = model.assignments_.sum(axis=0)
    assert len(users) == 41
    left_out = set(range(41)) - {int(axes.get_title().partition(":")[0]) for axes in panels}
    assert [users[i] for i in left_out] == [users.min()]
    assert "41 features (the 40 with the most rows drawn), explaining " in figure.get_suptitle()
    Z = np.asarray(last.images[0].get_array())
    assert Z.shape == (400, 40)
    kept = model.assignments_[:, sorted(set(range(41)) - left_out)]
    assert Z.mean(axis=0) == pytest.approx(kept.mean(axis=0), abs=0.02)  # averages of rows


@pytest.mark.parametrize(("least", "colors"), [(0.0, "gray_r"), (-0.5, "RdBu_r")])
def test_scale_of_pictures(least, colors):
    pytest.importorskip("matplotlib")
    data = as_table([[least, 1.0, 0.0, 0.5]], list("abcd"))
    model = KFeatures(1, n_init=1, random_state=0).fit(data.X)
    figure = _picture.feature_picture(data, model, (2, 2))
    image = next(axes for axes in figure.get_axes() if axes.images).images[0]
    assert image.get_cmap().name == colors
    assert image.get_clim() == ((0.0, 1.0) if least == 0 else (-1.0, 1.0))


def test_digits_are_drawn_as_pictures(run, refused, monkeypatch):
    pytest.importorskip("matplotlib")
    shapes, draw = [], _features.feature_picture

    def recording(table, model, shape):
        shapes.append(shape)
        return draw(table, model, shape)

    monkeypatch.setattr(_features, "feature_picture", recording)
    for more in ("", "--shape 4x16", "--columns 1:64", "--columns pixel_0_0:", "--exclude 1"):
        run(f"features --lam 1e5 --starts 1 --plot z.png {more}")
    assert shapes == [(8, 8), (4, 16), None]
    message = refused("features sums.csv --shape 2x4 --plot z.png")
    assert "--shape 2x4 is for 8 columns, but sums.csv has 6 columns: a, b" in message


@pytest.mark.parametrize("exact", [False, True])
def test_picture_of_a_path(exact):
    pytest.importorskip("matplotlib")
    error = np.array([100.0, 60, 25, 20, 0 if exact else 10])
    low, high = envelope(range(5), error)
    low[low >= high] = np.nan
    path = FeaturePath(np.arange(5), error, low, high, np.zeros(5), 0, 1.0)
    (axes,) = drawn(_picture.path_picture(as_table(np.zeros((7, 3)), list("abc")), path, 2)).axes
    assert axes.get_yscale() == ("linear" if exact else "log")
    assert np.array_equal(axes.lines[0].get_xydata(), np.column_stack([np.arange(5), error]))
    some, none, mark = (np.asarray(marks.get_offsets())[:, 0] for marks in axes.collections)
    assert sorted([*some, *none]) == [0, 1, 2, 3, 4]
    assert list(none) == list(np.flatnonzero(np.isnan(low)))
    assert list(mark) == [2]
    words = "number of features: 2 over the widest range of lam"
    assert axes.get_title() == f"{words}\n$t_{{.npy"


# Pictures of tracks


def walkers(k, d, dates=False):
    """Clusters that stay where they are, one of them unseen for two steps; and their model."""
    steps = np.repeat(np.arange(6), k)
    X = np.tile(np.arange(k)[:, np.newaxis] * [10.0, *[1.0] * (d - 1)], (6, 1))
    X[:, 0] += 0.1 * steps
    kept = (X[:, 0] > 5) | (steps < 2) | (steps > 3)
    times = steps * 20
    if dates:
        times = np.datetime64("2024-01-31T12:00:00") + times.astype("timedelta64[m]")
    data = as_table(X[kept], [f"name {i}" for i in range(d)], times=times[kept], clock="t")
    model = DynamicMeans(lam=20.0, t_q=10, k_tau=1.5)
    return data, model.fit(data.X, times=data.times)


@pytest.mark.parametrize("dates", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("k", [2, 50, 51])
def test_every_track_is_drawn(k, d, dates):
    pytest.importorskip("matplotlib")
    data, model = walkers(k, d, dates)
    axes, *bars = drawn(_picture.track_picture(data, model)).axes
    assert len(axes.collections[0].get_offsets()) == len(data.X)
    assert [text.get_text() for text in axes.texts] == [str(i) for i in range(k)] * (k <= 50)
    assert [bar.get_ylabel() for bar in bars] == ["t"] * (d > 1 and k > 50)
    titles = ("t", "name 0") if d == 1 else ("name 0", "name 1")
    assert (axes.get_xlabel(), axes.get_ylabel()) == titles
    some = ", the first 2 of 3 columns" if d == 3 else ""
    words = f"{k} clusters in 6 time steps; {len(data.X):,} rows{some}"
    assert axes.get_title() == f"{words}\n$t_{{.npy"


@pytest.mark.parametrize("d", [1, 2])
def test_pictures_of_scaled_tracks(d, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(_base, "MAX_POINTS", 7)
    data, _ = walkers(5, d)
    scaler = StandardScaler().fit(data.X)
    model = DynamicMeans(lam=0.5, t_q=10, k_tau=1.5)
    model.fit(scaler.transform(data.X), times=data.times)
    (axes, *_) = drawn(_picture.track_picture(data, model, scaler)).axes
    begins = np.asarray(axes.collections[3].get_offsets())[:, int(d == 1)]
    assert begins == pytest.approx(10.0 * np.arange(5))
    assert len(axes.collections[0].get_offsets()) == 7
    assert "28 rows (7 drawn)\n$t_{.npy, columns scaled" in axes.get_title()


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("n", [1, 60])
def test_tracks_of_one_step(ran, n, d):
    pytest.importorskip("matplotlib")
    write("t.npy", np.column_stack([np.ones(n), *[10.0 * np.arange(n)] * d]))
    report = ran("track t.npy --time 1 --lam 1 --plot picture.png")
    assert report["clusters"] == f"{n} ever seen, {n} alive at the end"


# Tracks


@pytest.mark.parametrize(("options", "guess"), [("", 8), ("--guess 3", 3)])
def test_penalty_from_all_steps(ran, options, guess):
    rng = np.random.default_rng(0)
    sizes = [2, 1, 15, 15, 9, 12, 15, 3]
    times = np.repeat(np.arange(8), sizes)
    X = rng.normal(size=(len(times), 2)) * np.repeat([0.01, 1, 5, 6, 7, 8, 9, 100], sizes)[:, None]
    write("t.npy", np.column_stack([times, X]))
    lams = [
        smallvar.farthest_first_lambda(X[times == step], min(guess, sizes[step]))
        for step in range(8)
        if step != 1  # a single row has no distance to any other
    ]
    by_row = np.repeat(lams, [size for size in sizes if size != 1])
    expected = np.quantile(by_row, 0.5, method="inverted_cdf")
    value, origin = ran(f"track t.npy --time 1 --verbose {options}")["lam"].split(maxsplit=1)
    assert float(value) == pytest.approx(expected, rel=1e-7)
    assert origin == (f"(farthest-first, median over the steps, for a guess of {guess} clusters)")


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1"])
@pytest.mark.parametrize("suffix", ["npy", "csv"])
def test_times_by_position(ran, fitted, dtype, suffix):
    X = np.array([[3, 7, 1], [4, 5, 2], [5, 7, 3]], dtype=dtype)
    write(f"t.{suffix}", X if suffix == "npy" else cli_tables.as_csv(X))
    report = ran(f"track t.{suffix} --time 2 --lam 1 --tracks tracks.csv")
    assert np.array_equal(fitted[0][1], X[:, [0, 2]])
    assert report["data"] == f"t.{suffix}, 2 columns: 1, 3"
    assert report["steps"] == "2 (column 2 from 5 to 7)"
    check_tracks("tracks.csv", fitted[0][0], ["1", "3"])


NOON = "2024-01-31T12:00:00"


@pytest.mark.parametrize(
    ("times", "steps"),
    [
        (["2024-02-01", "2024-01-31", "2024-02-01"], "2 (t from 2024-01-31 to 2024-02-01)"),
        ([NOON, "2024-01-31", "2024-01-31 12:00"], f"2 (t from 2024-01-31T00:00:00 to {NOON})"),
        (
            [f"{NOON}.25Z", "2024-01-31T13:00:00.00+02:00", f"{NOON}.25"],
            f"2 (t from 2024-01-31T11:00:00.000 to {NOON}.250)",
        ),
        (
            [f"{NOON}.000000002Z", "2024-01-31T13:00:00.000000001+01:00"],
            f"2 (t from {NOON}.000000001 to {NOON}.000000002)",
        ),
        ([2**53 + 1, 2**53], f"2 (t from {2**53} to {2**53 + 1})"),
        ([2**60, 2**60 + 1], f"2 (t from {2**60} to {2**60 + 1})"),
        ([2**63, 2**63 + 1], f"2 (t from {2**63} to {2**63 + 1})"),
        (["1", "1.0", "2"], "2 (t from 1 to 2)"),
        (["31.01.2024", "01.02.2024"], "2 (t from 2024-01-31 to 2024-02-01)"),
        (["1/2/2024", "1/13/2024 9:30"], "2 (t from 2024-01-02T00:00:00 to 2024-01-13T09:30:00)"),
    ],
)
def test_times_are_those_of_the_estimator(ran, fitted, times, steps):
    """Every form of dates, and different times are different steps whatever their digits."""
    n = len(times)
    write("t.csv", "t,x\n" + "".join(f"{time},{i}\n" for i, time in enumerate(times)))
    assert ran("track t.csv --time t --lam 9 --tracks tracks.csv")["steps"] == steps
    model = DynamicMeans(lam=9.0).fit(np.arange(n)[:, None], times=list(map(str, times)))
    assert np.array_equal(fitted[0][0].times_, model.times_)
    check_tracks("tracks.csv", fitted[0][0], ["x"])
    if "-" not in steps:
        return
    pd = pytest.importorskip("pandas")
    # one by one: pandas 2.2 gives dates without a zone that of others
    moments = [pd.to_datetime(time, utc=True, dayfirst=time[2:3] == ".") for time in times]
    for column in (times, moments):
        write("t.parquet", as_parquet({"t": column, "x": range(n)}))
        assert ran("track t.parquet --time t --lam 9")["steps"] == steps


def test_times_in_parquet(ran, refused, fitted):
    """They are read as in a table of text; categories in an order of their own are no times."""
    pd = pytest.importorskip("pandas")
    call = "track t.parquet --time t --lam 9"
    for times, words in [
        ([2, 1, 2], "1 to 2"),
        ([2.5, 1.0, 2.5], "1 to 2.5"),
        (pd.array([2, 1, 2], dtype="Int64"), "1 to 2"),
        (["10", "9", "10"], "9 to 10"),
        (pd.Categorical(["10", "9", "10"]), "9 to 10"),
    ]:
        write("t.parquet", as_parquet({"t": times, "x": [1.0, 2.0, 3.0], "y": [0, 0, 0]}))
        assert ran(call)["steps"] == f"2 (t from {words})"
        assert np.array_equal(fitted[-1][1], [[1, 0], [2, 0], [3, 0]])
    for times in ([2.0, None], pd.array([2, None], dtype="Int64"), ["2024-01-31", None]):
        write("t.parquet", as_parquet({"t": times, "x": [1, 2]}))
        assert "t.parquet, row 2, column t: missing value" in refused(call)
        assert ran(call, "--drop-missing")["n"] == "1"
    levels = ["low", "mid", "high"]
    for times, option, words in [
        (["u", "v", "w"], "--verbose", "times must be numbers or dates like"),
        (
            pd.Categorical(levels, levels, ordered=True),
            "--verbose",
            "column t (category): times must be numbers or dates",
        ),
        (
            pd.array([2**53, None, 2**53 + 1], dtype="Int64"),
            "--drop-missing",
            "column t: whole times of so many digits cannot be kept",
        ),
    ]:
        write("t.parquet", as_parquet({"t": times, "x": [1, 2, 3]}))
        assert words in refused(call, option)


def test_bad_times_in_npy(refused, no_fit):
    write("t.npy", np.array([[1.0, np.nan], [2.0, 3.0]]))
    assert "t.npy, row 1, column 2: missing value" in refused("track t.npy --time 2")
    write("t.npy", np.zeros((3, 1)))
    assert "has no other column" in refused("track t.npy --time 1")


# As a process


def test_as_a_module():
    done = python("-m", "smallvar", "blobs.csv", "--lam", "60")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^K +3$", done.stdout, re.M)
    done = python("-m", "smallvar", "none.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "smallvar: cannot read none.csv: No such file or directory\n"


def test_modules_are_imported_where_needed():
    program = """
import sys, smallvar
before = set(sys.modules)
from smallvar.__main__ import main
new = lambda: {name.partition(".")[0] for name in set(sys.modules) - before}
heavy = {"sklearn", "scipy", "pandas", "matplotlib"}
assert main(["--version"]) == main(["--help"]) == main(["--bad"]) - 2 == 0
for command in ("features", "track"):
    assert main([command, "--help"]) == main([command, "--bad"]) - 2 == 0
assert not new() & heavy, new()
assert main(["blobs.csv"]) == main(["features", "blobs.csv"]) == 0
assert main(["track", "blobs.csv", "--time", "x"]) == 0
assert not new() & {"matplotlib"}, new()
"""
    done = python("-c", program)
    assert done.returncode == 0, done.stderr


FULL = "smallvar: cannot write standard output: No space left on device\n"


@POSIX
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("--lam 60 > /dev/full", 1, FULL),
        ("--out - > /dev/full", 1, FULL),
        ("--verbose > /dev/full", 1, FULL),
        ("--show-config > /dev/full", 1, FULL),
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
@pytest.mark.parametrize("options", [["--lam", "60"], ["--verbose"], ["--show-config"], ["--help"]])
def test_reader_that_goes_away(options):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "smallvar", "blobs.csv", *options],
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=120,
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("command", ["cluster", "features", "track --time x"])
def test_ctrl_c(run, monkeypatch, command):
    def fit(self, X, **options):
        raise KeyboardInterrupt

    for estimator in ESTIMATORS:
        monkeypatch.setattr(estimator, "fit", fit)
    done = run(f"{command} blobs.csv --out labels.csv")
    assert done == (130, "", "smallvar: interrupted\n")
    assert not os.path.exists("labels.csv")


@pytest.mark.long
@POSIX
@pytest.mark.parametrize("command", [["--lam", "1"], ["features", "--lam", "1000"]])
def test_ctrl_c_stops_a_process(command):
    write("t.npy", np.random.default_rng(0).random((100_000, 16), dtype="f4"))
    # A process started in the background may have been told to ignore the signal.
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from smallvar.__main__ import main; sys.exit(main())"
    )
    before = os.listdir()
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program, *command, "t.npy", "--verbose", "--out", "l.csv"],
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
    assert os.listdir() == before


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


IMPATIENT = """
import time, warnings
import smallvar
from smallvar._cli import progress
progress.LINE_PATIENCE, progress.LINE_TICK = 0.05, 0.02
"""
SLOW_FIT = """
class Slow(smallvar.DPMeans):
    def fit(self, X):
        def wait(event):
            time.sleep(0.7)
            warnings.warn("strange")
        with smallvar.progress_callback(wait):
            return super().fit(X)
smallvar.DPMeans = Slow
"""


SWEEP = "sweep 1: 3 clusters, .*"


@pytest.mark.long
@POSIX
@pytest.mark.parametrize(
    ("options", "notes"),
    [
        (["--lam", "60"], [SWEEP]),
        ([], ["about 4 clusters by 60 rows, looking closer", "3 clusters by 60 rows", SWEEP]),
        (["--lam", "60", "--verbose"], []),
    ],
)
def test_progress_of_a_fit(options, notes):
    out, err = on_a_terminal(IMPATIENT + SLOW_FIT, "blobs.csv", *options)
    states = [state.rstrip() for state in err.split("\r")]
    for words in notes:
        so_far = r"(\d+ s|\d+% after \d+ s, about \d+ s left)"  # the share is known of a path
        assert any(re.fullmatch(rf"fitting: {so_far}, {words}", state) for state in states)
    assert "smallvar: warning: strange" in states  # not behind the line, but in place of it
    assert ("sweep 1: 3 clusters, " in out) == ("--verbose" in options)
    assert ("sweep" in err) == bool(notes)
    assert re.search(r"^K +3", out, re.M)


@pytest.mark.parametrize(
    ("stage", "k", "n", "words"),
    [
        ("coarse path", 42, 5000, "about 42 clusters by 5,000 rows, looking closer"),
        ("coarse path", 1, 1, "about 1 cluster by 1 row, looking closer"),
        ("path", 40, 20_000, "40 clusters by 20,000 rows"),
        ("sweep", 3, None, "what is printed"),
    ],
)
def test_words_of_a_step(stage, k, n, words):
    progress = SimpleNamespace()
    more = {"n_clusters": k, "n_samples": n, "message": "what is printed"}
    for done in (None, 0.25):
        _choice.note(progress, SimpleNamespace(stage=stage, done=done, **more))
        assert (progress.note, progress.done) == (words, done)


@pytest.mark.long
@POSIX
def test_time_left_of_tracks():
    program = """
class Slow(smallvar.DynamicMeans):
    def _step(self, *args):
        time.sleep(0.03)
        return super()._step(*args)
smallvar.DynamicMeans = Slow
"""
    argv = ["track", "stream.csv", "--time", "t", "--lam", "4"]
    out, err = on_a_terminal(IMPATIENT + program, *argv)
    shares = re.findall(r"fitting: (\d+)% after \d+ s, about \d+ s left", err)
    shares = [int(share) for share in shares]
    assert len(set(shares)) > 3
    assert shares == sorted(shares)
    assert set(shares) <= set(range(5, 101, 5))  # 20 steps
    assert "step 1" not in out
    assert re.search(r"\r +\r$", err)  # the line is taken away


@pytest.mark.long
@POSIX
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_time_left_of_reading(suffix):
    lines = "".join(f"{i},{i * i}\n" for i in range(200_000)).encode()
    write(f"t{suffix}", gzip.compress(lines) if suffix == ".csv.gz" else lines)
    program = """
from smallvar._cli import table
class Slow(progress.ProgressLine):  # lets the thread that draws run, however busy the machine
    share = None
    def get(self):
        return self.share
    def put(self, share):
        time.sleep(0.002)
        self.share = share
    done = property(get, put)
table.ProgressLine = Slow
"""
    _, err = on_a_terminal(IMPATIENT + program, f"t{suffix}", "--lam", "1e30")
    shares = [int(share) for share in re.findall(r"reading: (\d+)% after \d+ s, about", err)]
    assert len(shares) > 1
    assert shares == sorted(shares)
    assert 0 < shares[0] < 100 and shares[-1] <= 100


@pytest.mark.long
@POSIX
def test_no_progress_of_short_work():
    out, err = on_a_terminal("", "blobs.csv", "--lam", "60")
    assert "sizes" in out or "clusters" in out
    assert err == ""


def test_no_progress_without_a_terminal(run, monkeypatch):
    monkeypatch.setattr(_progress, "LINE_PATIENCE", 0.0)
    monkeypatch.setattr(_progress, "LINE_TICK", 0.001)
    assert run("blobs.csv --lam 60")[2] == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_spans_of_time(seconds, words):
    assert _progress.span(seconds) == words


def test_time_left():
    progress = _progress.ProgressLine("reading")
    assert progress.words(7) == "reading: 7 s"
    progress.done = 0.25
    assert progress.words(30) == "reading: 25% after 30 s, about 1 min 30 s left"


# Real files

AIRCRAFT = "adsb_quickstart_20s.csv track --time seconds --columns longitude,latitude"


@pytest.mark.parametrize(
    ("call", "warning", "facts"),
    [
        # UCI: Statlog Vehicle
        ("uci/vehicle.csv --columns Comp:Holl.Ra --guess 4", "columns Sc.Var.maxis", {"d": "18"}),
        ("uci/wine.csv --exclude class", "column proline makes up 99.7% of the", {}),
        ("uci/wine.csv --exclude class --scale", "", {"d": "13", "K": "3"}),
        # traffic: ADS-B; more than ten thousand from the first step
        (AIRCRAFT, "", {"n": "14457", "clusters": "88 ever"}),
        (f"{AIRCRAFT} --lam 0.05", "", {"steps": "540 (seconds from 0 to 10780)"}),
        # 100 rows of 14 x 14 pixels
        (f"bp_means_simulated.csv features --lam {40 * 255**2} --components a.csv", "", {"K": "4"}),
    ],
)
def test_real_files(ran, call, warning, facts):
    name, *options = call.split()
    path = Path(os.environ.get("SMALLVAR_DATA", ""), name)
    if not path.is_file():
        pytest.skip(f"SMALLVAR_DATA is not a folder with {name}")
    report = ran(*options, path, "--out", "l.csv", warning=warning)
    assert all(report[title].startswith(words) for title, words in facts.items())
    if "--scale" in options:
        classes = np.genfromtxt(path, delimiter=",", names=True)["class"]
        assert adjusted_rand_score(classes, read_out("l.csv")[1]) > 0.85
    if "--components" in options:
        A = np.loadtxt("a.csv", delimiter=",", skiprows=1)
        assert sorted((A > 250).sum(axis=1)) == [9, 9, 9, 9]
        assert (np.minimum(abs(A), abs(A - 255)) < 1e-9).all()


# By batches


def save_table(suffix, X):
    """A .npy file, or a .parquet file in groups of rows."""
    if suffix == ".npy":
        return write("t.npy", X)
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    columns = {f"c{i}": X[:, i] for i in range(X.shape[1])}
    parquet.write_table(pyarrow.table(columns), "t.parquet", row_group_size=700)
    return "t.parquet"


@pytest.mark.parametrize("out", ["l.npy", "l.csv", "l.parquet"])
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_batches(ran, suffix, out, dtype):
    X, groups = cli_tables.sorted_blobs()
    X = X.astype(dtype)
    report = ran("--verbose --batch-size 1000", save_table(suffix, X), "--out", out)
    assert (report["n"], report["d"], report["K"]) == ("3100", "3", "5")
    assert report["batches"] == "4 of up to 1,000 rows"
    titles, labels = read_out(out)
    assert titles in (None, ["cluster"])
    sizes = ", ".join(map(str, np.bincount(labels)))
    assert report["sizes"] == f"{sizes} (labels 0 to 4)"
    assert len(set(zip(labels, groups, strict=True))) == 5
    error = sum(np.square(X[groups == k] - X[groups == k].mean(axis=0)).sum() for k in range(5))
    assert float(report["SSE"].split()[0]) == pytest.approx(error, rel=1e-3)
    again = ran(f"t{suffix} --verbose --batch-size 1000 --out again.npy")
    assert {**again, "seconds": 0, "labels": 0} == {**report, "seconds": 0, "labels": 0}
    assert np.array_equal(np.load("again.npy"), labels)


@pytest.mark.parametrize("dtype", ["f2", ">f8", "i2", "u8", "?"])
def test_batches_of_other_types(ran, dtype):
    X = (np.random.default_rng(0).integers(0, 5, size=(900, 3)) * 40).astype(dtype)
    facts = []
    for kind in (dtype, "f8"):
        report = ran("--verbose --batch-size 200 --lam 100", write("t.npy", X.astype(kind)))
        facts.append({name: report[name] for name in ("K", "objective", "SSE", "sizes")})
    assert facts[0] == facts[1]


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e9])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("n", [1, 5000])  # more than a block
def test_squared_error_of_batches(n, dtype, offset):
    rng = np.random.default_rng(0)
    X, centers = rng.normal(offset, 1, (n, 9)).astype(dtype), rng.normal(offset, 1, (4, 9))
    labels = rng.integers(4, size=n, dtype=np.int32)
    exact = sum(
        (Fraction(x) - Fraction(c)) ** 2
        for row, center in zip(X.tolist(), centers[labels].tolist(), strict=True)
        for x, c in zip(row, center, strict=True)
    )
    assert _batches.squared_error(X, labels, centers) == pytest.approx(float(exact), rel=1e-14)


@pytest.mark.parametrize(("suffix", "column"), [(".npy", "1"), (".parquet", "c0")])
def test_batches_of_columns(ran, run, suffix, column):
    X, groups = cli_tables.sorted_blobs()
    path = save_table(suffix, np.column_stack([1e6 * np.arange(len(X)), X]))
    call = f"{path} --exclude {column} --batch-size 500"
    report = ran(f"{call} --lam 4 --max-clusters 9 --verbose")
    assert (report["K"], report["d"]) == ("5", "3")
    assert report["lam"].startswith("4 (")
    assert ran(f"{call} --guess 5")["d"] == "3"
    assert ran(f"{call} --n-clusters 7")["K"] == "7"
    code, out, err = run(f"{call} --out - --verbose")
    assert code == 0
    labels = np.array(out.split()[1:], dtype=int)
    assert len(set(zip(labels, groups, strict=True))) == 5
    assert "row 3100: 5 clusters" in err


def test_batches_of_pandas(ran):
    """An index is no column; whole numbers and truth values are numbers."""
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    X = np.round(cli_tables.sorted_blobs()[0]).astype(int)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1] > 5, "c": X[:, 2].astype("f4")})
    frame.index = pd.Index(np.arange(len(X)) * 100, name="row")
    frame.iloc[::-1].to_parquet("t.parquet")
    report = ran("t.parquet --batch-size 1000 --lam 9")
    assert report["data"] == "t.parquet, 3 columns: a, b, c"


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_batches_refused(refused, no_fit, monkeypatch, suffix):
    X, _ = cli_tables.sorted_blobs()
    path = save_table(suffix, X)
    call = f"{path} --batch-size 1000"
    for option, message in [
        ("--path", "--batch-size: --path needs the whole table at once"),
        ("--algorithm merge", "--batch-size: --algorithm needs the whole table at once"),
        ("--min-cluster-size 9", "--batch-size: --min-cluster-size needs the whole table at once"),
        ("--plot x.png", "--batch-size: --plot needs the whole table at once"),
        ("--profiles 2", "--batch-size: --profiles needs the whole table at once"),
        ("--scale", "--batch-size: --scale needs the whole table at once"),
        ("--drop-missing", "--batch-size: --drop-missing needs the whole table at once"),
        ("--decimal ,", "--decimal , has no meaning with --batch-size"),
        (f"--out {path}", "would overwrite the data"),
    ]:
        assert message in refused(f"{call} {option}")
    for value, what in ((np.nan, "missing"), (np.inf, "infinite")):
        X[2500, 1] = value
        save_table(suffix, X)
        title = "2" if suffix == ".npy" else "c1"
        assert f"row 2501, column {title}: {what} value" in refused(call)
    save_table(suffix, X[:0])
    assert "has no values: 0 rows" in refused(call)
    write(path, b"nonsense")
    assert f"t{suffix}" in refused(call)
    assert "the name of DATA must end in" in refused("--batch-size 1000")
    assert "No such file" in refused(f"none{suffix} --batch-size 9")
    if suffix == ".parquet":
        write(path, as_parquet({"a": ["x"], "b": [1]}))
        assert "column a (" in refused(call) and "not numeric" in refused(call)
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        assert "needs pyarrow: pip install 'smallvar[parquet]'" in refused(call)


@pytest.mark.long
@POSIX
def test_progress_of_batches():
    program = """
from smallvar._cli import batches
read = batches.NpyBatches.read
def slow(self):
    for X in read(self):
        time.sleep(0.05)
        yield X
batches.NpyBatches.read = slow
"""
    _, err = on_a_terminal(IMPATIENT + program, "batches.npy", "--batch-size", "200")
    for work in ("looking", "fitting", "labeling"):
        pattern = rf"{work}: \d+% after \d+ s, about \d+ s left, [\d,]+ rows, [\d,]+ a second"
        assert re.search(pattern, err)


@pytest.mark.long
def test_memory_of_batches():
    """Neither the table nor its labels are ever held."""
    tracemalloc = pytest.importorskip("tracemalloc")
    X = np.repeat(np.random.default_rng(0).random((4, 8)) * 50, 50_000, axis=0)
    argv = f"{write('t.npy', X)} --batch-size 2000 --lam 9 --out l.csv".split()
    assert main(argv) == 0  # imports
    tracemalloc.start()
    try:
        assert main(argv) == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.6 * X.nbytes


# Row numbers


def test_row_numbers_are_left_out(run):
    X = np.column_stack([np.arange(1, 1 + len(BLOBS)), BLOBS])
    names = ["Sample Number", *"abcdefgh"[: BLOBS.shape[1]]]
    write("numbered.csv", cli_tables.as_csv(X, ",".join(names)))
    code, out, err = run("numbered.csv --out labels.npy")
    assert code == 0
    assert err == (
        "smallvar: column Sample Number is left out: whole numbers that ascend from row to row; "
        "--keep 'Sample Number' keeps it\n"
    )
    assert f"d       {BLOBS.shape[1]}\n" in re.sub(r"(?m)^d +", "d       ", out)
    labels = np.load("labels.npy")
    run("blobs.csv --out others.npy")
    assert np.array_equal(labels, np.load("others.npy"))

    for option in ("--keep 'Sample Number'", f"--columns 'Sample Number:{names[-1]}'"):
        code, out, err = run(f"numbered.csv {option} --lam 1e9")
        assert (code, "left out" in err) == (0, False)
        assert re.search(rf"(?m)^d +{BLOBS.shape[1] + 1}$", out)
    assert "--keep x: no column 'x'" in run("numbered.csv --keep x")[2]


def test_row_numbers_of_a_table_with_words(run):
    lines = ["id,a,word", *(f"{i},{i % 3 * 9 + i / 100},{'xyz'[i % 3]}" for i in range(1, 61))]
    write("t.csv", "\n".join(lines).encode())
    assert re.search(r"id +left out +a key: whole numbers", run("t.csv")[1])
    assert re.search(r"id +normal", run("t.csv --keep id")[1])
    assert re.search(r"id +exponential", run("t.csv --keep id --kinds id=exponential")[1])


def test_a_record_is_no_stream(run):
    lines = ["time,a", *(f"{i},{i % 7}" for i in range(30))]
    write("t.csv", "\n".join(lines).encode())
    assert "SegmentMeans, in Python, finds states" in run("track t.csv --time time")[2]
    assert "SegmentMeans" not in run("track stream.csv --time t")[2]


def test_flags_of_an_array(run):
    write("t.npy", np.arange(60).reshape(20, 3) % 7 < 3)
    assert run("t.npy")[0] == 0


def test_long_lines_go_on_below():
    line = f"kinds  {'word ' * 30}end"
    lines = _output.in_width(line, 60).split("\n")
    assert len(lines) == 3 and all(len(part) <= 60 for part in lines)
    assert all(part.startswith("       word") for part in lines[1:])
    assert " ".join(part.strip() for part in lines) == line
    for whole in ("short", "  3  x  " + 40 * " " + "far  1.5  2.5" * 3, 90 * "x"):
        assert _output.in_width(whole, 60) == whole
    assert _output.in_width("a " * 40 + "b", 60).count("\n") == 1


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_are_whole_unless_on_a_terminal(monkeypatch, capsys, terminal):
    monkeypatch.setattr(_output.shutil, "get_terminal_size", lambda: os.terminal_size((40, 9)))
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    _output.say("next  " + "word " * 12)
    assert (capsys.readouterr().out.count("\n") > 1) == terminal


def test_row_numbers_in_batches(run):
    pytest.importorskip("pyarrow")
    X, id_of = BLOBS, np.arange(len(BLOBS))
    write("t.parquet", as_parquet({"id": id_of, "a": X[:, 0], "b": X[:, 1]}))
    err = run("t.parquet --batch-size 50 --lam 60")[2]
    assert "column id takes part: whole numbers that ascend" in err
    assert "--exclude id leaves it out" in err
    assert "takes part" not in run("t.parquet --batch-size 50 --lam 60 --columns id,a,b")[2]


def test_the_index_of_a_frame_is_columns(run):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(BLOBS[:, :2], columns=["a", "b"])
    frame["name"] = [f"row {i}" for i in range(len(frame))]
    frame.set_index("name").to_parquet("t.parquet")
    assert run("t.parquet --id name --out o.csv")[0] == 0
    written = pd.read_csv("o.csv")
    assert written["name"].tolist() == frame["name"].tolist()
    frame[["a", "b"]].to_parquet("plain.parquet")
    assert "2 columns" in run("plain.parquet")[1]
