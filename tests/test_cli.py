"""The command line: what it reads, refuses, prints and writes."""

import contextlib
import csv
import gzip
import io
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

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler, scale

import smallvar
from smallvar._cli import arguments as _arguments
from smallvar._cli import batches as _batches
from smallvar._cli import choice as _choice
from smallvar._cli import cluster as _cluster
from smallvar._cli import data as _data
from smallvar._cli import features as _features
from smallvar._cli import picture as _picture
from smallvar._cli import progress as _progress
from smallvar._cli import table as _table
from smallvar._cli.main import COMMANDS, in_options, main
from smallvar._cli.table import counted
from smallvar._features.feature_path import FeaturePath
from smallvar._plot import base as _base
from smallvar._plot.base import cluster_colors
from smallvar._plot.features import BARS
from smallvar._selection.envelope import envelope

with contextlib.suppress(ImportError):
    import matplotlib.pyplot  # noqa: F401  what it warns of on import is not the command line's

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and pipes")
ESTIMATORS = [smallvar.DPMeans, smallvar.BPMeans, smallvar.KFeatures, smallvar.DynamicMeans]
ESTIMATORS += [smallvar.MixedDPMeans]
AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


@pytest.fixture(autouse=True)
def no_input(monkeypatch):
    """Whatever the tests are run with, standard input holds no data."""
    with open(os.devnull, encoding="utf-8") as null:
        monkeypatch.setattr(sys, "stdin", null)
        yield


@pytest.fixture
def run(capsys):
    """Run the command line in this process: exit code, standard output, standard error."""

    def run(*argv):
        code = main([str(argument) for argument in argv])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def ran(run):
    """Run what must succeed, without a warning unless one is expected; take its report apart."""

    def ran(*argv, warning=""):
        code, out, err = run(*argv)
        assert code == 0
        assert warning in err if warning else err == ""
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


@pytest.fixture
def blobs(tmp_path):
    """Three clusters of 20 points each, in a csv file."""
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0, 0.0, 0.0], [10.0, 0.0, 5.0], [0.0, 20.0, 5.0]], 20, axis=0)
    X += rng.normal(size=X.shape)
    np.savetxt(tmp_path / "blobs.csv", X, delimiter=",", header="x,y,z", comments="", fmt="%.17g")
    return tmp_path / "blobs.csv", X


@pytest.fixture
def stream(tmp_path):
    """Three groups over 20 steps, one gone from step 8 to 9 and one from 12; in a csv file."""
    rng = np.random.default_rng(0)
    rows = []
    for step in range(20):
        for group, gone in enumerate([(), (8, 9), range(12, 20)]):
            if step not in gone:
                center = [10.0 * group + 0.1 * step, 5.0 - 0.15 * step * group]
                rows += [[center[0], 100.0 + step / 2, center[1]] for _ in range(5)]
    rows = np.array(rows)[rng.permutation(len(rows))]  # not in the order of time
    rows[:, [0, 2]] += 0.1 * rng.normal(size=(len(rows), 2))
    np.savetxt(tmp_path / "s.csv", rows, delimiter=",", header="x,t,y", comments="", fmt="%.17g")
    return tmp_path / "s.csv", rows[:, [0, 2]], rows[:, 1]


@pytest.fixture
def sums(tmp_path):
    """Thirty rows that are sums of three features and a little noise, in a csv file."""
    rng = np.random.default_rng(0)
    A = np.array([[9.0, 9, 0, 0, 0, 0], [0, 0, 7, 7, 0, 0], [0, 5, 0, 0, 5, 5]])
    X = (rng.random((30, 3)) < 0.5) @ A + rng.normal(scale=0.1, size=(30, 6))
    np.savetxt(tmp_path / "sums.csv", X, delimiter=",", header="a,b,c,d,e,f", comments="")
    return tmp_path / "sums.csv", np.loadtxt(tmp_path / "sums.csv", delimiter=",", skiprows=1)


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
    assert np.array_equal(labels, smallvar.DPMeans(lam=60.0).fit(X).labels_)
    assert sorted(np.bincount(labels)) == [20, 20, 20]
    sse = sum(((X[labels == k] - X[labels == k].mean(axis=0)) ** 2).sum() for k in range(3))
    assert report["data"] == "blobs.csv, 3 columns: x, y, z"
    assert (report["n"], report["d"], report["K"]) == ("60", "3", "3")
    assert report["lam"] == "60 (given)"
    assert float(report["SSE"]) == pytest.approx(sse)
    assert report["objective"].endswith(" (SSE + lam K)")
    assert float(report["objective"].split()[0]) == pytest.approx(sse + 60 * 3)
    assert report["sizes"] == "20, 20, 20 (labels 0 to 2)"
    assert int(report["sweeps"]) >= 2
    assert re.fullmatch(r"\d+\.\d+ reading, \d+\.\d+ fitting", report["seconds"])
    assert report["labels"] == str(tmp_path / "labels.csv")
    assert "picture" not in report


@pytest.mark.parametrize("guess", [2, 3, 8])
def test_penalty_from_a_guess(ran, blobs, guess):
    path, X = blobs
    report = ran(path, "--guess", guess)
    value, origin = report["lam"].split(maxsplit=1)
    assert float(value) == pytest.approx(smallvar.farthest_first_lambda(X, guess), rel=1e-7)
    assert origin == f"(farthest-first, for a guess of {guess} clusters)"
    assert report["K"].isdigit()


@pytest.mark.parametrize("k", [1, 3, 7])
def test_exact_number(ran, blobs, tmp_path, k):
    path, X = blobs
    report = ran(path, "--n-clusters", k, "--out", tmp_path / "labels.npy")
    model = smallvar.DPMeans(n_clusters=k, random_state=0).fit(X)
    assert np.array_equal(np.load(tmp_path / "labels.npy"), model.labels_)
    assert report["K"] == f"{k} (given)"
    assert float(report["lam"].split()[0]) == pytest.approx(model.lam_, rel=1e-7)


def test_without_data_a_set_of_known_clusters_is_used(run, fitted, tmp_path):
    _, out, _ = run("--out", tmp_path / "l.npy")
    X, cultivar = load_wine(return_X_y=True)
    np.testing.assert_allclose(fitted[0][1], scale(X), atol=1e-12)
    first, second, *report, last, draw = out.splitlines()
    assert "178 wines of 3 cultivars that scikit-learn ships" in first
    assert "smallvar FILE" in second
    assert "data       wines, 13 columns: alcohol, " in "\n".join(report)
    assert draw == "Draw the clusters: smallvar --plot wines.png"
    labels = np.load(tmp_path / "l.npy")
    most = [np.bincount(labels[cultivar == k]).argmax() for k in range(3)]
    assert len(set(most)) == labels.max() + 1 == 3
    together = sum((labels == most[k])[cultivar == k].sum() for k in range(3))
    assert together > 0.95 * 178
    assert last == (
        f"Known: 3 cultivars. Found: 3 clusters, with {together} of 178 wines "
        f"({100 * together / 178:.0f}%) in the cluster of their cultivar."
    )


def test_columns_and_penalty_without_data(run, tmp_path):
    pytest.importorskip("matplotlib")
    argv = ["--columns", "alcohol:ash", "--lam", "1e6", "--plot", tmp_path / "w.png"]
    _, out, _ = run("cluster", *argv)
    assert "3 columns: alcohol, malic_acid, ash\n" in out
    assert out.endswith(  # the largest cultivar has 71 of the wines
        "\nKnown: 3 cultivars. Found: 1 cluster, with 71 of 178 wines (40%) in the cluster of "
        "their cultivar.\n"
    )
    assert "Known:" not in run("--path")[1]
    assert "Known:" not in run("features", "--lam", "1e5", "--starts", "1")[1]


def test_cultivars_and_clusters_are_paired():
    cultivars = np.repeat([0, 1, 2], [5, 4, 3])
    labels = np.array([3, 3, 3, 0, 0, 3, 3, 3, 3, 1, 1, 2])
    # cluster 3 has 3 and 4 of the first two cultivars: it is paired with the second
    words = _data.wines_in_words(cultivars, labels)
    assert words.startswith("Known: 3 cultivars. Found: 4 clusters, with 8 of 12 wines (67%) in")


def test_sizes_are_cut_where_there_are_many(ran, tmp_path):
    X = np.repeat(np.arange(20.0), [5, *range(2, 21)]).reshape(-1, 1) * 10
    np.save(tmp_path / "many.npy", X)
    sizes = ran(tmp_path / "many.npy", "--lam", "0.5", "--out", tmp_path / "l.npy")["sizes"]
    expected = np.bincount(np.load(tmp_path / "l.npy"))
    assert (np.diff(expected) > 0).any() and (np.diff(expected) < 0).any()
    first, rest = ", ".join(map(str, expected[:12])), expected[12:]
    expected = f"{first} and 8 more of {rest.max()} to {rest.min()} points (labels 0 to 19)"
    assert sizes == expected


def test_options_reach_the_estimator(ran, blobs, fitted):
    path, _ = blobs
    ran(path)
    ran(
        path,
        *["--lam", "3", "--algorithm", "collapsed", "--max-clusters", "4"],
        *["--threads", "2", "--seed", "7"],
    )
    plain, chosen = (estimator.get_params() for estimator, _ in fitted)
    assert plain == smallvar.DPMeans(random_state=0).get_params()
    changed = {name: value for name, value in chosen.items() if value != plain[name]}
    assert changed == {
        "lam": 3.0,
        "algorithm": "collapsed",
        "max_clusters": 4,
        "n_threads": 2,
        "random_state": 7,
        "shuffle": True,
    }


@pytest.mark.parametrize(
    ("argv", "changed"),
    [
        ([], {"random_state": 0}),
        (["--lam", "auto", "--seed", 3], {"random_state": 3}),
        (["--lam", 60], {"lam": 60.0}),
        (["--lam", 60, "--seed", 0], {"lam": 60.0, "random_state": 0, "shuffle": True}),
        (["--n-clusters", 2], {"n_clusters": 2, "random_state": 0}),
        (["--guess", 2], {"lam": "farthest-first", "guess": 2}),
        (
            ["--guess", 2, "--algorithm", "merge"],
            {"lam": "farthest-first", "guess": 2, "algorithm": "merge", "random_state": 0},
        ),
        (
            ["--lam", 60, "--algorithm", "merge", "--seed", 5],
            {"lam": 60.0, "algorithm": "merge", "random_state": 5},
        ),
    ],
)
def test_what_is_random(ran, blobs, fitted, argv, changed):
    ran(blobs[0], *argv)
    assert fitted[0][0].get_params() == smallvar.DPMeans().get_params() | changed


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


def test_warnings_name_options():
    words = "With n_clusters the number is given, with algorithm='merge' not"
    expected = "With --n-clusters the number is given, with --algorithm merge not"
    assert in_options(UserWarning(words)) == expected


def test_warnings_name_the_clusterings_of_a_path_by_an_option():
    words = "clusters that overlap may look like one: see path_.labels(2)"
    assert in_options(UserWarning(words)) == f"{words[:-15]}--n-clusters 2"


@pytest.mark.parametrize(("header", "named"), [("alcohol,malic,ash,proline", "malic"), ("", "2")])
@pytest.mark.parametrize("argv", [[], ["--path", "--out"]])
def test_the_warning_names_the_columns_that_are_skewed(run, tmp_path, header, named, argv):
    X = load_wine().data[:, [0, 1, 2, 12]]
    with pytest.warns(smallvar.UnclearNumberWarning, match=r"columns are skewed \(1\)"):
        smallvar.DPMeans(random_state=0).fit(X)
    lines = [header] * bool(header) + [",".join(map(repr, row)) for row in X.tolist()]
    path = write(tmp_path / "t.csv", "\n".join(lines))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, _, err = run(path, *argv, *([tmp_path / "l.csv"] if argv else []))
    assert code == 0
    assert err.count("is not clear") == 1
    assert f"columns are skewed ({named})" in err


def test_names_the_terminal_cannot_show(tmp_path):
    path = write(tmp_path / "länge.csv", "größe,x\n1,2\n3,4\n")
    done = python("-m", "smallvar", path, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\xf6\\xdfe" in done.stdout


# The number of clusters, chosen from the data


@pytest.fixture
def iris(tmp_path):
    """A table for which 4 is slightly ahead of 3, which has the wider range of lam."""
    np.save(tmp_path / "iris.npy", load_iris().data)
    return tmp_path / "iris.npy", load_iris().data


def number_of(k, low, high):
    words = f"K = {k} is best from {low:.6g} to {high:.6g}"
    return f"(a price for each cluster, not a distance; {words})"


@pytest.mark.parametrize("argv", [[], ["--lam", "auto"], ["--algorithm", "merge"]])
def test_the_data_choose(ran, blobs, tmp_path, argv):
    path, X = blobs
    report = ran(path, *argv, "--out", tmp_path / "l.csv")
    expected = smallvar.lambda_path(X, random_state=0)
    assert expected.ranking[:2].tolist() == [3, 4]
    assert re.fullmatch(
        r"3 \(from the data; (not )?clear, confidence 0\.\d\d(: .*)?\)", report["K"]
    )
    value, words = report["lam"].split(maxsplit=1)
    assert float(value) == pytest.approx(expected.lam, rel=1e-7)
    assert words == number_of(3, expected.lam_low[2], expected.lam_high[2])
    assert report["sizes"] == "20, 20, 20 (labels 0 to 2)"
    labels = np.loadtxt(tmp_path / "l.csv", skiprows=1, dtype=int)
    assert len(np.unique(labels.reshape(3, 20)[:, 0])) == 3
    assert (labels.reshape(3, 20) == labels.reshape(3, 20)[:, :1]).all()
    sse = sum(((X[labels == k] - X[labels == k].mean(axis=0)) ** 2).sum() for k in range(3))
    assert float(report["SSE"]) == pytest.approx(sse)
    assert float(report["objective"].split()[0]) == pytest.approx(sse + 3 * expected.lam)


def test_a_seed_repeats_the_search(run, iris):
    def result(*argv):
        return [line for line in run(iris[0], *argv)[1].splitlines() if "seconds" not in line]

    assert result() == result("--seed", 0)
    assert result("--seed", 5) == result("--seed", 5)


def made_up_path(criterion, low, high, best, **more):
    """A path with these criteria and ranges of lam for 1, 2, ... clusters."""
    counts = np.arange(1, len(criterion) + 1)
    criterion = np.array(criterion, dtype=float)
    ranking = counts[np.argsort(criterion, kind="stable")]
    low, high = np.array(low, dtype=float), np.array(high, dtype=float)
    return SimpleNamespace(
        n_clusters=counts,
        inertia=100.0 / counts,
        criterion=criterion,
        lam_low=low,
        lam_high=high,
        best=best,
        lam=1.0,
        tie=9.2,
        n_samples=100,
        ranking=ranking,
        **more,
    )


LOW, HIGH = [40, 20, 15, 10, 0], [np.inf, 40, 20, 15, 10]


@pytest.mark.parametrize(
    ("best", "confidence", "alike", "words"),
    [
        (17, 0.8, [18], "clear"),
        (17, 1.0, [], "clear"),
        (17, 0.79, [], "not clear"),
        (17, 0.5, [18], "not clear: 17 and 18 fit about as well"),
        (17, 0.5, [16, 18, 19], "not clear: 16 to 19 fit about as well"),
        (17, 0.0, [1, 2, 3, 30], "not clear: 1 to 3, 17 and 30 fit about as well"),
        (17, 0.5, [15, 19], "not clear: 15, 17 and 19 fit about as well"),
        (32, 0.5, [34, 40], "not clear: 32 to 40 fit about as well"),  # no number between these
        (32, 0.5, [31, 40], "not clear: 31, 32 and 40 fit about as well"),
        (17, 0.5, [1, 3, 5, 40], "not clear: 5 numbers from 1 to 40 fit about as well"),
    ],
)
def test_certainty_in_words(best, confidence, alike, words):
    counts = np.array([*range(1, 33), 34, 40, 60])
    words = words.replace("clear", f"clear, confidence {confidence:.2f}")
    assert _choice.certainty_in_words(best, confidence, counts, alike) == words


def test_numbers_about_as_good():
    counts = np.array([1, 2, 3, 4, 5, 8])
    confidences = np.array([0.1, 0.01, 0.45, 0.15, 0.14, 0.15])
    assert _choice.about_as_good(3, counts, confidences) == [4, 8]
    assert _choice.about_as_good(1, counts, confidences) == [3, 4, 5, 8]
    assert _choice.about_as_good(1, counts, np.zeros(6)) == []


@pytest.mark.parametrize(
    ("criterion", "best", "most", "confidences", "words"),
    [
        ([90, 7, 30, 40, 60], 2, None, None, "2 (from the data)"),
        ([90, 7, 30, 40, 60], 2, None, [0, 0.9, 0.1, 0, 0], "2 (from the data; clear, confidence"),
        ([90, 70, 30, 4, 60], 2, 2, [0.1, 0.6, 0.3, 0, 0], "2 (from the data, 2 at most: 4 fits "),
        # 3 is too many
        ([90, 70, 30, 4, 60], 2, 2, [0.1, 0.6, 0.3, 0, 0], "better; not clear, confidence 0.60)"),
        ([90, 70, 69, 68, 67], 2, 2, None, "2 (from the data)"),
        ([90, 7, 5, 6, 60], 2, None, [0, 0.4, 0.3, 0.2, 0], "; not clear, confidence 0.40: 2 to 4"),
        ([9, *[np.inf] * 4], 1, None, [1, 0, 0, 0, 0], "; too few distinct rows to support anothe"),
        ([9, 8, 8, 9, 9], 1, 1, [0.1, 0.8, 0, 0, 0], "1 (from the data; no other was allowed)"),
    ],
)
def test_how_sure_the_number_is(criterion, best, most, confidences, words):
    more = {}
    if confidences is not None:
        more = {"confidences": np.array(confidences), "confidence": confidences[best - 1]}
    choice = _choice.Choice(made_up_path(criterion, LOW, HIGH, best, **more), most)
    assert words in choice.in_words(best)
    assert choice.in_words(best - 1).startswith(f"{best - 1} ({best} from the data, fewer after")


def test_numbers_that_fit_about_as_well_are_marked():
    confidences = np.array([0, 0.4, 0.3, 0.1, 0.2])
    path = made_up_path([90, 7, 5, 6, 60], LOW, HIGH, 2, confidence=0.4, confidences=confidences)
    *rows, alike, chosen = _choice.Choice(path, None).as_table().splitlines()[1:]
    assert [row.split()[0] for row in rows if row[-1] == "="] == ["3", "5"]
    assert [row.split()[0] for row in rows if row[-1] == "*"] == ["2"]
    assert alike == "   = fits about as well as the one chosen"
    words = "about the lowest criterion, and of those the widest range of lam"
    assert chosen == f"   * chosen: {words}"
    path.lam_low[1] = path.lam_high[1]
    *_, chosen = _choice.Choice(path, None).as_table().splitlines()
    assert chosen == f"   * chosen: {words} before the last sweeps"
    path.confidence = 0.9
    *_, last, chosen = _choice.Choice(path, 2).as_table().splitlines()
    assert last.endswith("*")
    assert chosen == "   * chosen: the lowest criterion"


@pytest.mark.parametrize(
    ("best", "low", "high", "lam", "words"),
    [
        (2, [4, 2, 0], [np.inf, 4, 2], 3, "K = 2 is best from 2 to 4"),
        (1, [4, 2, 0], [np.inf, 4, 2], 8, "K = 1 is best from 4 on"),
        (3, [4, 2, 0], [np.inf, 4, 2], 1, "K = 3 is best up to 2"),
        (1, [0], [np.inf], 1, "K = 1 is best for all lam"),
    ],
)
def test_the_range_of_lam(best, low, high, lam, words):
    path = made_up_path([9, 9, 9][: len(low)], low, high, best)
    path.lam = lam
    choice = _choice.Choice(path, None)
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


@pytest.mark.parametrize("lam", [1.9, 4.1])
def test_a_lam_outside_of_the_range_that_is_printed(lam):
    path = made_up_path([9, 9, 9], [4, 2, 0], [np.inf, 4, 2], 2)
    path.lam = lam
    words = _choice.Choice(path, None).lam_in_words().partition("; ")[2]
    assert words == (
        "found before the last sweeps, after which K = 2 is the minimum of SSE + lam K from 2 to 4"
    )


def test_what_is_printed_of_lam_holds(run, tmp_path):
    X = np.random.default_rng(0).normal(size=(900, 8)) ** 3  # no clusters, and a long path
    np.save(tmp_path / "t.npy", X)
    for k in range(2, 12):
        _, out, _ = run(tmp_path / "t.npy", "--n-clusters", k)
        words = re.search(r"^lam +(\S+) \(.*; (.*)\)$", out, re.M)
        path = smallvar.DPMeans(n_clusters=k, random_state=0).fit(X).path_
        assert float(words[1]) == pytest.approx(path.lam, rel=1e-7)
        minimum = [path.at(lam) == k for lam in np.geomspace(1e-3, 1e9, 20_000)]
        inside = path.at(path.lam) == k
        assert any(minimum) == ("no lam" not in words[2])
        assert inside == words[2].startswith(f"K = {k} is best")


def test_at_most_so_many_clusters(ran, blobs, tmp_path):
    path, X = blobs
    report = ran(path, "--max-clusters", 2, "--out", tmp_path / "l.csv")
    expected = smallvar.lambda_path(X, max_clusters=2, random_state=0)
    assert expected.best == 2
    assert report["K"].startswith("2 (from the data, 2 at most: 3 fits better")
    assert set(np.loadtxt(tmp_path / "l.csv", skiprows=1)) == {0, 1}
    assert re.match(r"3 \(from the data[;)]", ran(path, "--max-clusters", 7)["K"])
    assert "no other was allowed" in ran(path, "--max-clusters", 1)["K"]


def test_merge_with_a_penalty(ran, tmp_path):
    X = np.random.default_rng(0).normal(size=(400, 1)) / 10
    X[:200] += 1.0
    np.save(tmp_path / "t.npy", X)  # no row is as far as sqrt(5) from the mean, but two save 95
    done = python("-m", "smallvar", tmp_path / "t.npy", "--lam", 5)
    assert re.search(r"^K +1$", done.stdout, re.M)
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("use --algorithm merge, or --lam auto to let the data choose.\n")
    report = ran(tmp_path / "t.npy", "--lam", 5, "--algorithm", "merge")
    assert (report["K"], report["lam"]) == ("2", "5 (given)")
    assert report["sizes"] == "200, 200 (labels 0 to 1)"


@pytest.mark.parametrize(
    "text",
    [
        *("1,2\n", "1,2\n3,4\n", "1,2\n1,2\n"),  # fewer than 3 rows
        *("1,2\n1,2\n1,2\n1,2\n1,2\n", "5\n" * 40),  # all of them equal
    ],
)
@pytest.mark.parametrize("argv", [[], ["--scale"], ["--algorithm", "collapsed"]])
def test_rows_that_make_one_cluster(ran, tmp_path, text, argv):
    report = ran(write(tmp_path / "few.csv", text), *argv, "--out", tmp_path / "l.csv")
    assert report["K"] == "1 (from the data; too few distinct rows to support another)"
    assert report["sizes"] == report["n"] == str(text.count("\n"))
    assert set((tmp_path / "l.csv").read_text().split()[1:]) == {"0"}


@pytest.mark.parametrize("d", [1, 2, 6])
def test_one_blob_is_one_cluster(ran, tmp_path, d):
    X = np.random.default_rng(d).normal(size=(300, d))
    np.savetxt(tmp_path / "t.csv", X, delimiter=",")
    assert re.match(r"1 \(from the data[;)]", ran(tmp_path / "t.csv")["K"])


def apart(rng, k, d):
    """Centers whose blobs of standard deviation 1 do not touch."""
    centers = [rng.uniform(-30, 30, d)]
    while len(centers) < k:
        center = rng.uniform(-30, 30, d)
        if np.linalg.norm(center - centers, axis=1).min() > 10:
            centers.append(center)
    return np.array(centers)


@pytest.mark.parametrize("seed", range(3))
def test_noise_far_away_leaves_the_blobs(ran, tmp_path, seed):
    rng = np.random.default_rng(seed)
    blob = np.arange(500) % 5
    X = apart(rng, 5, 2)[blob] + rng.normal(size=(500, 2))
    way = rng.normal(size=(8, 2))
    noise = rng.uniform(150, 400, (8, 1)) * way / np.linalg.norm(way, axis=1, keepdims=True)
    order = rng.permutation(508)
    np.savetxt(tmp_path / "t.csv", np.concatenate([X, noise])[order], delimiter=",")
    ran(tmp_path / "t.csv", "--out", tmp_path / "l.npy")
    labels = np.empty(508)
    labels[order] = np.load(tmp_path / "l.npy")
    assert adjusted_rand_score(blob, labels[:500]) >= 0.98


@pytest.mark.parametrize("seed", range(10))
def test_outliers_leave_the_blobs(seed):
    rng = np.random.default_rng(seed)
    k, d = rng.integers(3, 9), rng.integers(2, 7)
    blob = np.arange(500) % k
    X = apart(rng, k, d)[blob] + rng.normal(size=(500, d))
    way = rng.normal(size=(5, d))
    outliers = X[rng.integers(0, 500, 5)] + 30 * way / np.linalg.norm(way, axis=1, keepdims=True)
    model = smallvar.DPMeans(random_state=0).fit(np.concatenate([X, outliers]))
    assert adjusted_rand_score(blob, model.labels_[:500]) >= 0.98


# The path over the number of clusters


def cluster_path_rows(out):
    """The table that --path prints, as rows of words."""
    lines = out.splitlines()
    titles = ["K", "SSE", "criterion", "rank", "best", "for", "lam", "from", "to"]
    assert lines[0].split() == titles
    rows = [line for line in lines[1 : lines.index("")] if line[3] not in "*="]
    return [row.replace("(path ends)", "ends").split() for row in rows]


@pytest.mark.parametrize("after", [False, True])
def test_path_of_clusters(run, blobs, after):
    path, X = blobs
    code, out, err = run(*["--path", path] if after else [path, "--path"])
    assert (code, err) == (0, "")
    expected = smallvar.lambda_path(X, random_state=0)
    rows = cluster_path_rows(out)
    assert [int(row[0]) for row in rows] == expected.n_clusters.tolist()
    ranks = {}
    columns = list(expected.to_dict().values())[1:]
    for row, sse, criterion, low, high in zip(rows, *columns, strict=True):
        assert float(row[1]) == pytest.approx(sse, rel=1e-7)
        if np.isfinite(criterion):
            gap = criterion - expected.criterion.min()
            assert row[2] == f"+{gap:,.1f}"
            ranks[int(row[3])] = int(row[0])
        else:
            assert row[2:4] == ["-", "-"]
        if low < high:
            ends = low == 0 and sse > 0
            assert row[4] == "ends" if ends else float(row[4]) == pytest.approx(low, rel=1e-7)
            assert float(row[5]) == pytest.approx(high, rel=1e-7)
        else:
            assert row[4:6] == ["-", "-"]
    assert [ranks[i] for i in sorted(ranks)] == expected.ranking[: len(ranks)].tolist()
    assert [row[0] for row in rows if row[-1] == "*"] == ["3"]
    assert "   * chosen: the lowest criterion\n" in out
    report = dict(line.split(maxsplit=1) for line in out[out.index("\n\n") :].splitlines() if line)
    assert list(report) == ["data", "n", "d", "lam", "K", "seconds"]
    assert re.match(r"3 \(from the data[;)]", report["K"])
    value, words = report["lam"].split(maxsplit=1)
    assert float(value) == pytest.approx(expected.lam, rel=1e-7)
    assert words == number_of(3, expected.lam_low[2], expected.lam_high[2])


def test_path_whose_lowest_criterion_is_not_chosen(run, iris):
    expected = smallvar.lambda_path(iris[1], random_state=0)
    assert (expected.best, expected.ranking[0]) == (3, 4)  # or else another table is needed
    _, out, _ = run(iris[0], "--path")
    assert [row[0] for row in cluster_path_rows(out) if row[-1] == "*"] == ["3"]
    assert "   * chosen: about the lowest criterion, and of those the widest range of lam\n" in out


def test_length_of_the_path_of_clusters(run, blobs, iris):
    for argv in (["--path", "2", iris[0]], [iris[0], "--path", "2"]):
        rows = cluster_path_rows(run(*argv)[1])
        assert [row[0] for row in rows] == ["1", "2"]
        assert rows[1][3] == "1"
        assert rows[1][-1] == "*"
    out = run(blobs[0], "--path", "1000")[1]
    assert len(cluster_path_rows(out)) == len(cluster_path_rows(run(blobs[0], "--path")[1]))
    assert "2 at most: 3 fits better" in run(iris[0], "--path", "2")[1]


def test_path_in_the_search_of_options(ran, run, blobs, monkeypatch):
    asked, find = [], smallvar.lambda_path
    monkeypatch.setattr(
        smallvar, "lambda_path", lambda X, **options: asked.append(options) or find(X, **options)
    )
    ran(blobs[0], "--path")
    ran(blobs[0], "--path", 7, "--seed", 4, "--threads", 2)
    _, out, _ = run(blobs[0], "--path", "--verbose")
    names = ("max_clusters", "random_state", "n_threads", "verbose")
    expected = [(None, 0, None, 0), (7, 4, 2, 0), (None, 0, None, 1)]
    assert asked == [dict(zip(names, values, strict=True)) for values in expected]
    lines = r"coarse path: 60 rows, \d+ clusters and fewer, best \d\npath: 60 rows"
    assert re.match(lines, out)


@pytest.mark.parametrize("length", [[], ["2"]])
def test_labels_of_a_path(run, ran, blobs, tmp_path, length):
    path, _ = blobs
    bound = ["--max-clusters", *length] if length else []
    ran(path, *bound, "--out", tmp_path / "direct.csv")
    _, without, _ = run(path, "--path", *length)
    _, out, _ = run(path, "--path", *length, "--out", tmp_path / "path.csv")
    assert (tmp_path / "path.csv").read_bytes() == (tmp_path / "direct.csv").read_bytes()
    assert cluster_path_rows(out) == cluster_path_rows(without)
    assert re.search(rf"^labels +{re.escape(str(tmp_path / 'path.csv'))}$", out, re.M)
    _, out, err = run(path, "--path", *length, "--out", "-")
    assert out.encode() == (tmp_path / "path.csv").read_bytes().replace(b"\r", b"")
    assert cluster_path_rows(err) == cluster_path_rows(without)


def test_labels_of_a_path_keep_the_dropped_rows(ran, tmp_path):
    path = write(tmp_path / "t.csv", "a,b\n1,2\n,4\n1,3\n")
    ran(path, "--path", "--drop-missing", "--out", tmp_path / "l.csv")
    assert (tmp_path / "l.csv").read_text() == 'label\n0\n""\n0\n'


def test_path_of_scaled_columns(run, ran, uneven):
    path, X = uneven
    _, out, _ = run(path, "--scale", "--path")
    scaled = StandardScaler().fit_transform(X[:, :2])
    assert float(cluster_path_rows(out)[0][1]) == pytest.approx((scaled**2).sum())
    assert "\nscaled " in out


def test_path_of_equal_rows(run, tmp_path):
    np.save(tmp_path / "t.npy", np.full((9, 2), 7.0))
    code, out, err = run(tmp_path / "t.npy", "--path")
    assert (code, err) == (0, "")
    assert cluster_path_rows(out) == [["1", "0", "+0.0", "1", "0", "inf", "*"]]
    assert "K = 1 is best for all lam" in out


def test_path_of_a_sample(run, tmp_path):
    X = np.repeat([[0.0, 0.0], [9.0, 9.0]], 15_000, axis=0)
    X += np.random.default_rng(0).normal(size=X.shape)
    np.save(tmp_path / "t.npy", X)
    code, out, err = run(tmp_path / "t.npy", "--path")
    assert (code, err) == (0, "")
    assert re.search(r"^sample +20,000 rows, drawn at random$", out, re.M)
    assert re.search(r"^K +2 \(from the data[;)]", out, re.M)
    total = ((X - X.mean(axis=0)) ** 2).sum()
    assert float(cluster_path_rows(out)[0][1]) == pytest.approx(total, rel=0.05)


# Commands and arguments


def test_a_command_is_one_function(monkeypatch, run):
    given = []
    monkeypatch.setitem(COMMANDS, "other", given.append)
    assert run("other", "a", "--b") == (0, "", "")
    assert given == [["a", "--b"]]
    assert "commands: cluster, features, track, other (default: cluster)" in run("--help")[1]


def test_a_file_may_be_called_like_a_command(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "./cluster: No such file" in refused("./cluster")
    assert " cluster: No such file" in refused("cluster", "cluster")
    assert "./features: No such file" in refused("./features")


@pytest.mark.parametrize("argv", [["--version"], ["cluster", "--version"]])
def test_version(run, argv):
    assert run(*argv) == (0, f"smallvar {smallvar.__version__}\n", "")


@pytest.mark.parametrize("argv", [["--help"], ["cluster", "-h"]])
def test_help_is_complete(run, argv):
    code, out, err = run(*argv)
    assert (code, err) == (0, "")
    for option in (
        *(
            "--lam",
            "--n-clusters",
            "--guess",
            "--algorithm",
            "--max-clusters",
            "--columns",
            "--out",
        ),
        *("--plot", "--threads", "--seed", "--verbose", "--version", "--show-config"),
        *(
            "--exclude",
            "--drop-missing",
            "--decimal",
            "--scale",
            "--path",
            "--header",
            "--no-header",
        ),
    ):
        assert f"  {option}" in out
    assert "squared data units" in " ".join(out.split())
    assert out.count("\n  smallvar ") == 3  # the examples
    words = " ".join(out.split())
    assert "where the data choose K, and with merge, the rows that the search begins from" in words
    assert "(default: 0, so that the same command gives the same result)" in words


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
        (["--n-clusters", "1_0"], "argument --n-clusters: must be an integer >= 1, got '1_0'"),
        (
            ["--n-clusters", "\uff13"],
            "argument --n-clusters: must be an integer >= 1, got '\uff13'",
        ),
        (["--lam", "1_0.5"], "argument --lam: must be a number >= 0, got '1_0.5'"),
        (["--path", "1_0"], "argument --path: must be an integer >= 1, got '1_0'"),
        (["--n-clusters", "61"], "n_clusters must be <= 60, the number of distinct rows, got n"),
        (["--n-clusters", "3", "--max-clusters", "2"], "n_clusters must be <= max_clusters=2, got"),
        (["--n-clusters", "3", "--guess", "3"], "--guess: not allowed with argument --n-clusters"),
        (["--guess", "0"], "argument --guess: must be an integer >= 1, got '0'"),
        (["--guess", "61"], "guess must be <= n_samples=60, got guess=61"),
        (["--max-clusters", "0"], "argument --max-clusters: must be an integer >= 1, got '0'"),
        (["--threads", "0"], "argument --threads: must be an integer >= 1, got '0'"),
        (["--seed", "-1"], "argument --seed: must be an integer >= 0, got '-1'"),
        (["--algorithm", "magic"], "invalid choice: 'magic'"),
        (["--lam", "auto", "--n-clusters", "3"], "not allowed with argument --lam"),
        (["--lam", "Auto"], "argument --lam: must be a number >= 0, got 'Auto'"),
        (["--path", "0"], "argument --path: must be an integer >= 1, got '0'"),
        (["--path", "2.5"], "argument --path: must be an integer >= 1, got '2.5'"),
        (["--path", "two"], "argument --path: must be an integer >= 1, got 'two'"),
        (["--path", "--lam", "2"], "argument --lam: not allowed with argument --path"),
        (["--path", "--lam", "auto"], "argument --lam: not allowed with argument --path"),
        (["--path", "--guess", "2"], "--guess: not allowed with argument --path"),
        (["--path", "--n-clusters", "2"], "--n-clusters: not allowed with argument --path"),
        (["--path", "--algorithm", "merge"], "--algorithm has no meaning with --path"),
        (
            ["--path", "5", "--max-clusters", "2"],
            "--max-clusters has no meaning with --path: give --path M",
        ),
        (["--alg", "serial"], "unrecognized arguments"),
        (["--max-clusters", "9" * 30], "argument --max-clusters: must be <= "),
        (["another.csv"], "unrecognized arguments: another.csv (see smallvar --help)"),
        (["--exclude", "x\ny"], "--exclude x y: new-line character seen in unquoted field"),
        (["--out"], "expected one argument"),
    ],
)
def test_bad_arguments(refused, blobs, argv, message):
    assert message in refused(blobs[0], *argv)


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["--n-cluster", "3"], "; did you mean --n-clusters?"),
        (["--lamm=3"], "; did you mean --lam?"),
        (["3", "--Scale"], "; did you mean --scale?"),
        (["--zzz"], "(see smallvar --help)"),
    ],
)
def test_options_that_are_nearly_right(refused, blobs, argv, hint):
    assert refused(blobs[0], *argv).endswith(f"{hint}\n")
    assert refused("track", "--t-qq", "3").endswith("track --help); did you mean --t-q?\n")


def test_commands_that_are_nearly_right(refused, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for word, command in [("feature", "features"), ("Track", "track"), ("clusters", "cluster")]:
        message = f"{word} is neither a command nor a file; did you mean {command}?"
        assert message in refused(word, "--lam", "3")
    write(tmp_path / "feature", "1,2")
    assert "feature: the name must end in" in refused("feature")


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
        ("commas.txt", "a,b\n1,2.5\n3,-4e1\n"),
        ("tabs.dat", "a\tb\n1\t2.5\n3\t-4e1\n"),
        ("spaces.txt", "1 2.5\n3 -4e1\n"),
        ("aligned.txt", "   a     b\n\n   1   2.5\n   3  -4e1  \n"),
        ("spaces.csv", "a b\n1 2.5\n3 -4e1\n"),
        ("spaces_and_tabs.dat", "a \t b\n1 2.5\n3\t  -4e1\n"),
        ("quoted.txt", '"a b" "c"\n"1" 2.5\n3 "-4e1"\n'),
        ("crlf.txt", "a b\r\n1  2.5\r\n3  -4e1\r\n"),
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
    ],
)
def test_header_is_detected(ran, tmp_path, text, n, columns):
    path = write(tmp_path / "t.csv", text)
    report = ran(path)
    assert report["n"] == str(n)
    assert report["data"].startswith(f"t.csv, {columns}")
    given = ran(path, "--header" if n < text.count("\n") else "--no-header")
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
def test_doubtful_headers_are_told(run, ran, tmp_path, text, n, told):
    path = write(tmp_path / "t.csv", text)
    code, out, err = run(path)
    assert code == 0
    assert f"\nn          {n}\n" in f"\n{out}"
    is_header = "the header, " in told
    option, other = ("--no-header", "a row") if is_header else ("--header", "the header")
    assert err == f"smallvar: warning: {path}, {told}; {option} takes it as {other}\n"
    if "id" not in text:  # which is a word in a column of numbers, if it is no title
        assert ran(path, option)["n"] == str(n + 1 if is_header else n - 1)
    assert ran(path, "--header" if is_header else "--no-header")["n"] == str(n)


def test_headers_of_all_commands(ran, refused, no_fit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.csv", "1,2,2\n1,4,5\n2,3,1\n")
    np.save(tmp_path / "t.npy", np.eye(3))
    for option in ("--header", "--no-header"):
        assert f"{option}: t.npy is not a text file" in refused("t.npy", option)
        assert f"{option} has no meaning without DATA" in refused(option)
        assert f"{option} has no meaning with --batch-size" in refused(
            "t.npy", "--batch-size", 2, option
        )
        assert f"{option} has no meaning with --dask" in refused(".", "--dask", option)
    assert "not allowed with argument --header" in refused("t.csv", "--header", "--no-header")


def test_headers_of_other_commands(ran, fitted, tmp_path):
    path = write(tmp_path / "t.csv", "1990,1991,1992\n1,4,5\n2,3,1\n")
    ran("features", path, "--header", "--columns", "1991", "--lam", 1)
    ran("features", path, "--no-header", "--columns", 2, "--lam", 1)
    ran("track", path, "--header", "--time", 1990, "--lam", 1)
    ran("track", path, "--no-header", "--time", 1, "--lam", 1)
    expected = [[[4], [3]], [[1991], [4], [3]], [[4, 5], [3, 1]], [[1991, 1992], [4, 5], [3, 1]]]
    for (_, X), rows in zip(fitted, expected, strict=True):
        assert np.array_equal(X, rows)


def test_text_is_read_exactly(run, fitted, tmp_path):
    X = np.random.default_rng(0).lognormal(sigma=20, size=(500, 7))
    np.savetxt(tmp_path / "t.csv", X, delimiter=",", fmt="%.17g")
    run("features", tmp_path / "t.csv", "--n-components", 1, "--starts", 1)
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
        ("a,b\n1,2\n3,1_1\n", "t.csv, line 3, column b: '1_1' is not a number"),
        ("a,b\n1,2\n3,\uff11\uff11\n", "t.csv, line 3, column b: '\uff11\uff11' is not a number"),
        ("1,2\n3,1e1_0\n", "t.csv, line 2, column 2: '1e1_0' is not a number"),
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
        (f"{','.join('abcdefghij')}\n{'x,' * 9}y\n", "e ('x') and 5 more not numeric; choose"),
        (",a,b\n0,1,2\n", "t.csv: column 1 has no name in the header"),
        (",0,1,2\n0,1,2,5\n", "t.csv: column 1 has no name in the header"),
        ("a\0,b\n1,2\n", "t.csv is not a text file in UTF-8"),
        ("a b\n1 2\n3\n4 5\n", "t.csv, line 3: 1 cell, but 2 in line 1"),
        ("a b\n1 2\n\n3 NA\n", "t.csv, line 4, column b: missing value"),
        ("my column\n1\n2\nx\n", "t.csv, line 4, column my column: 'x' is not a number"),
        ("a;b\n1;2\n3,5;4\n", "'3,5' is not a number (or give --decimal ,)"),
        (
            "a;b\n1,5;2\n",
            "with --columns or --exclude (or give --decimal ,)",
        ),
        ("a,b\n1,2\n3," + "4" * 200_000, "t.csv, line 3: a cell has more than 131,072 characters"),
    ],
)
def test_bad_text(refused, no_fit, tmp_path, text, message):
    path = write(tmp_path / "t.csv", text)
    assert message in refused("features", path)
    if "missing value" not in message and "not numeric" not in message:
        assert message in refused(path)  # others are clustered as they are


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
def test_all_columns_of_words_can_be_excluded_as_they_are_named(refused, ran, tmp_path, names):
    with open(tmp_path / "t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["x", *names, "y"]] + [[0, *["red"] * len(names), 1]] * 3)
    columns = ["--columns", "x:y"] if "" in names else []
    message = refused("features", tmp_path / "t.csv", *columns)
    assert len(message.split("\n")) == 2
    advice = re.search(r"; without (?:it|them): (--exclude.*); smallvar cluster takes", message)[1]
    shell = subprocess.run(
        ["/bin/bash", "-c", f"printf '%s\\0' {advice}"],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8"},
    )
    argv = shell.stdout.decode().split("\0")[:-1]
    assert ran(tmp_path / "t.csv", *columns, *argv, "--scale")["data"] == "t.csv, 2 columns: x, y"


def test_columns_that_begin_with_a_gap_are_named_too(refused, tmp_path):
    path = write(tmp_path / "t.csv", "a,b,c,d\n1,red,,\n2,blue,,3\n4,red,small,5\n")
    message = refused(path, "--scale")
    assert "line 2: column b ('red') not numeric; choose others with --columns or" in message
    assert "; without it: --exclude b,c; without --scale, words and gaps are taken" in message
    twice = write(tmp_path / "t.csv", "a,b,b\n1,red,blue\n")
    assert "; without them: --exclude b,b.1;" in refused(twice, "--guess", 1)
    assert "without --guess, words and gaps are taken" in refused(twice, "--guess", 1)


# What a terminal obeys

ODD = "a\x1b[2J\u202eb\tc\x9bd"
ODD_ESCAPED = r"a\x1b[2J\u202eb\tc\x9bd"


def test_control_characters_are_escaped(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i},{i % 7},{i % 2}\n" for i in range(40))
    write(tmp_path / "t.csv", f"{ODD},y,z\n{rows}")
    write(tmp_path / "words.csv", f"{ODD},y,z\n{rows}red,1,\n")
    write(tmp_path / f"{ODD}.csv", f"x,y,z\n{rows}")
    for argv in (
        ["t.csv"],
        ["features", "t.csv"],
        ["track", "t.csv", "--time", "z"],
        ["track", "t.csv", "--time", ODD],
        ["words.csv", "--kinds", "y=poisson"],
        ["t.csv", "--kinds", f"{ODD}=poisson"],
        ["t.csv", "--columns", "w"],
        ["words.csv", "--scale"],
        [f"{ODD}.csv"],
        [f"{ODD}.csv", "--out", f"{ODD}-out.csv"],
        [f"./{ODD}.txt"],
        ["t.csv", f"--{ODD}"],
        ["t.csv", "--lam", ODD],
    ):
        code, out, err = run(*argv)
        assert code == 2 or out
        assert ODD_ESCAPED in out + err, argv
        assert all(char.isprintable() or char == "\n" for char in out + err), argv


def test_names_with_line_breaks_stay_in_their_line(ran, tmp_path):
    path = write(tmp_path / "t.csv", '"a\nb",c\n1,2\n3,4\n')
    assert ran(path)["data"] == r"t.csv, 2 columns: a\nb, c"


def test_joiners_are_no_control_characters(ran, tmp_path):
    path = write(tmp_path / "t.csv", "نمی\u200cبینم,größe\u00a0m\n1,2\n3,4\n")
    assert ran(path)["data"] == "t.csv, 2 columns: نمی\u200cبینم, größe\u00a0m"


# Encodings


def test_text_in_another_encoding_is_refused_with_the_remedy(refused, ran, no_fit, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("x,y\n1,2\n3,4 Größe\n".encode("cp1252"))
    for argv in (["features", path], [path], [path, "--columns", "x"]):
        message = refused(*argv)
        assert "t.csv is not a text file in UTF-8: byte 0xf6 in line 3; --encoding" in message
        assert "--encoding cp1252 (western European) reads '3,4 Größe' there" in message
    path.write_bytes("Größe,y\n1,2\n3,4\n".encode("utf-16"))
    assert "perhaps in UTF-16: try --encoding utf-16" in refused(path)
    with gzip.open(tmp_path / "t.csv.gz", "wb") as file:
        file.write(b"x\n" + b"1\n" * 18_000 + b"\xa7\n")
    assert "byte 0xa7 in line 18002; " in refused("features", tmp_path / "t.csv.gz")


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-8", "UTF_8"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_encodings(ran, fitted, tmp_path, encoding, mark):
    text = f"{mark if encoding.lower().startswith('utf') else ''}Größe,Maß\n1,2.5\n3,-4e1\n"
    if encoding == "utf-16":
        text = text.removeprefix("\ufeff")  # which the encoding adds
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    report = ran(tmp_path / "t.csv", "--encoding", encoding)
    assert report["data"] == "t.csv, 2 columns: Größe, Maß"
    assert np.array_equal(fitted[0][1], [[1.0, 2.5], [3.0, -40.0]])


def test_encoded_words(ran, tmp_path):
    rows = "".join(f"{i},{'Köln' if i % 2 else 'Lyon'}\n" for i in range(40))
    (tmp_path / "t.csv").write_bytes(f"Zahl,Ort\n{rows}".encode("cp1252"))
    assert ran(tmp_path / "t.csv", "--encoding", "cp1252", "--n-clusters", 2)["Ort"]


def test_bad_encodings(refused, no_fit, blobs, tmp_path):
    for name in ("klingon", "zip", "a\0b"):
        assert ": this encoding is not known" in refused(blobs[0], "--encoding", name)
    path = write(tmp_path / "t.csv", "größe\n1\n")
    assert "t.csv is not a text file in ascii: 'ascii' codec" in refused(
        path, "--encoding", "ascii"
    )
    np.save(tmp_path / "t.npy", np.zeros((3, 2)))
    assert "t.npy is not a text file" in refused(tmp_path / "t.npy", "--encoding", "ascii")
    batches = refused(tmp_path / "t.npy", "--encoding", "ascii", "--batch-size", 2)
    assert "--encoding ascii has no meaning with --batch-size" in batches
    assert "--encoding ascii has no meaning without DATA" in refused("--encoding", "ascii")


@pytest.mark.parametrize("text", ['a;b\n1;"12,000"\n', "a;b\n1;2\n1;12,000\n"])
def test_thousands_are_no_decimals(refused, no_fit, tmp_path, text):
    assert "--decimal" not in refused(write(tmp_path / "t.csv", text))


# Decimal commas


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("semicolon.csv", "a;b\n1;2,5\n3;-4e1\n"),
        ("no_header.csv", "1,0;2,5\n3;-40,0\n"),
        ("comma_in_names.csv", "a, of 1;b, of 1\n1;2,5\n3,0;-4e1\n"),
        ("tab.tsv", "a\tb\n1\t2,5\n3\t-4e1\n"),
        ("tab.csv", "1,0\t2,5\n3,0\t-40,0\n"),
        ("spaces.txt", "1,0  2,5\n3,0  -40,0\n"),
        ("quoted.csv", '"1,0";"2,5"\n"3,0";"-40,0"\n'),
    ],
)
def test_decimal_commas(ran, fitted, tmp_path, name, text):
    ran(write(tmp_path / name, text), "--decimal", ",")
    assert np.array_equal(fitted[0][1], [[1.0, 2.5], [3.0, -40.0]])


@pytest.mark.parametrize("text", ["1,5\n2,25\n", "x\n1,5\n2,25\n"])
def test_decimal_commas_in_a_single_column(ran, fitted, tmp_path, text):
    ran(write(tmp_path / "t.csv", text), "--decimal", ",")
    assert np.array_equal(fitted[0][1], [[1.5], [2.25]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,4\n", "--decimal ,: t.csv is separated by commas; it must be by semicolons"),
        ("1,2,3\n4,5,6\n", "t.csv is separated by commas"),
        ('"1,5","2,5"\n"3,5","4,5"\n', "t.csv is separated by commas"),
        ("a;b\n1,5;2.5\n", "column b ('2.5') not numeric"),
        ("a;b\n1,5;2\n1;2.5\n", "line 3, column b: '2.5' is not a number (or give --decimal .)"),
        ("a;b\n1,5;2\n1;1.234,5\n", "line 3, column b: '1.234,5' is not a number"),
    ],
)
def test_bad_decimal_commas(refused, no_fit, tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.csv", text)
    assert message in refused("t.csv", "--decimal", ",")


def test_decimal_commas_are_for_text(refused, no_fit, tmp_path):
    np.save(tmp_path / "t.npy", np.zeros((3, 2)))
    assert "t.npy is not a text file" in refused(tmp_path / "t.npy", "--decimal", ",")
    assert "--decimal , has no meaning without DATA" in refused("--decimal", ",")
    assert "invalid choice: ';'" in refused("--decimal", ";")


def test_times_with_decimal_commas(ran, tmp_path):
    path = write(tmp_path / "t.csv", "t;x\n0,5;1,5\n0,25;2,5\n")
    report = ran("track", path, "--time", "t", "--lam", 1, "--decimal", ",")
    assert report["steps"] == "2 (t from 0.25 to 0.5)"


# Compressed text


@pytest.mark.parametrize("suffix", [".csv.gz", ".tsv.gz", ".TXT.GZ", ".dat.gz"])
def test_compressed_text(ran, fitted, blobs, tmp_path, suffix):
    lines = blobs[0].read_text()
    text = lines.replace(",", "\t" if suffix == ".tsv.gz" else " ")
    (tmp_path / f"t{suffix}").write_bytes(gzip.compress(text.encode()))
    report = ran(tmp_path / f"t{suffix}", "--lam", 60)
    assert np.array_equal(fitted[0][1], blobs[1])
    assert report["data"] == f"t{suffix}, 3 columns: x, y, z"


def test_bad_compressed_text(refused, no_fit, blobs, tmp_path):
    path = tmp_path / "t.csv.gz"
    whole = gzip.compress(blobs[0].read_bytes())
    path.write_bytes(whole[: len(whole) // 2])
    assert "t.csv.gz: Compressed file ended" in refused(path)
    path.write_bytes(whole[:60] + b"abcdefghijk" + whole[71:])
    assert f"cannot read {path}: Error -3" in refused(path)
    assert "t.csv.gz: Not a gzipped file" in refused(write(path, "1,2\n"))
    path.write_bytes(whole + b"and more")
    assert refused(path) == f"smallvar: {path} has other bytes after its compressed data\n"
    path.write_bytes(gzip.compress(b""))
    assert "t.csv.gz is empty" in refused(path)
    path.write_bytes(gzip.compress(b"a,b\n1,2\n3,inf\n"))
    assert "t.csv.gz, line 3, column b: infinite value" in refused(path)


# Standard input


@pytest.fixture
def stdin(monkeypatch, tmp_path):
    """Put bytes into standard input, as a pipe or, where asked for, as a file."""
    opened = []

    def fill(content, as_file=False):
        if as_file:
            (tmp_path / "redirected").write_bytes(content)
            reading = os.open(tmp_path / "redirected", os.O_RDONLY)
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
@pytest.mark.parametrize("dash", [["-"], []])
@pytest.mark.parametrize("as_file", [True, False])
def test_text_from_standard_input(ran, fitted, blobs, stdin, dash, as_file):
    stdin(blobs[0].read_bytes(), as_file)
    report = ran(*dash, "--lam", 60)
    assert np.array_equal(fitted[0][1], blobs[1])
    assert report["data"] == "standard input, 3 columns: x, y, z"
    stdin(blobs[0].read_bytes(), as_file)
    report = ran("features", "--lam", 60, *dash)
    assert report["data"] == "standard input, 3 columns: x, y, z"
    stdin(blobs[0].read_bytes(), as_file)
    assert ran("features", "--path", *dash)["data"] == "standard input, 3 columns: x, y, z"


@POSIX
def test_other_kinds_from_standard_input(ran, fitted, stdin):
    X = np.arange(6.0).reshape(3, 2)
    file = io.BytesIO()
    np.save(file, X)
    text = b"a b\n0 1\n2 3\n4 5\n"
    for content in (file.getvalue(), text, gzip.compress(text)):
        stdin(content)
        ran("-")
        assert np.array_equal(fitted[-1][1], X)
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    stdin(pd.DataFrame(X).rename(columns=str).to_parquet())
    assert ran("-")["data"] == "standard input, 2 columns: 0, 1"
    assert np.array_equal(fitted[-1][1], X)


@POSIX
def test_bad_standard_input(refused, no_fit, stdin, monkeypatch):
    stdin(b"")
    assert "standard input is empty" in refused("-")
    stdin(b"a,b\n1,2\n3,inf\n")
    assert "standard input, line 3, column b: infinite value" in refused("-")
    stdin(b"a,b\n1,2\n")
    assert "--columns c: standard input has no column 'c'" in refused("--columns", "c")
    stdin(b"t,x\n1,2\n")
    assert "--time COLUMN is missing" in refused("track")
    stdin(b"\x93NUMPY...")
    assert "standard input: " in refused("-")
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in refused("-")


@POSIX
def test_redirected_data_are_not_overwritten(refused, no_fit, stdin, tmp_path):
    stdin(b"a,b\n1,2\n", as_file=True)
    (tmp_path / "out.csv").symlink_to(tmp_path / "redirected")
    assert "would overwrite the data" in refused("--out", tmp_path / "out.csv")


@POSIX
def test_standard_input_gives_way_to_data(ran, blobs, stdin):
    stdin(b"a,b\n1,2\n")
    assert ran(blobs[0], "--lam", 60)["n"] == "60"
    assert sys.stdin.read() == "a,b\n1,2\n"


@POSIX
def test_without_data_in_standard_input_there_is_a_stand_in(ran, stdin, monkeypatch):
    for as_file in (False, True):
        stdin(b"", as_file)
        assert ran("--lam", 1e6)["n"] == "178"
    with open(os.devnull) as null:
        monkeypatch.setattr(sys, "stdin", null)
        assert ran("--lam", 1e6)["n"] == "178"
    monkeypatch.setattr(_arguments, "PIPE_PATIENCE", 0.01)
    reading, writing = os.pipe()  # in which nothing arrives, and which nobody closes
    with open(reading) as silent, open(writing, "w"):
        monkeypatch.setattr(sys, "stdin", silent)
        warning = "nothing came through standard input for 0.01 s, so it is not read; give - as"
        assert ran("--lam", 1e6, warning=warning)["n"] == "178"
    monkeypatch.setattr(sys, "stdin", None)
    assert ran("--lam", 1e6)["n"] == "178"


@POSIX
def test_piped_input_chooses(run, blobs):
    with open(blobs[0], "rb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "smallvar", "--out", "-"],
            input=file.read(),
            capture_output=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    labels = np.array(done.stdout.decode().split()[1:], dtype=int).reshape(3, 20)
    assert sorted(labels[:, 0]) == [0, 1, 2]
    assert (labels == labels[:, :1]).all()
    assert b"3 (from the data" in done.stderr


def test_pipes_between_processes(blobs):
    argv = [sys.executable, "-m", "smallvar", "--lam", "60", "--out", "-"]
    done = subprocess.run(argv, input=blobs[0].read_bytes(), capture_output=True, timeout=120)
    assert done.returncode == 0
    header, *labels = done.stdout.decode().splitlines()
    assert header == "label"
    assert np.array_equal(np.array(labels, int), smallvar.DPMeans(lam=60.0).fit(blobs[1]).labels_)
    assert re.search(r"^data +standard input, 3 columns: x, y, z$", done.stderr.decode(), re.M)


def test_far_into_a_file_the_line_is_right(refused, no_fit, tmp_path):
    lines = ["a,b"] + ["1,2"] * 3000
    lines[2500] = "1,inf"
    assert "line 2501, column b: infinite" in refused(write(tmp_path / "t.csv", "\n".join(lines)))
    lines[2500] = "1,?"
    path = write(tmp_path / "t.csv", "\n".join(lines))
    assert "line 2501, column b: missing" in refused("features", path)


def test_files_that_cannot_be_read(refused, no_fit, tmp_path):
    assert "No such file" in refused(tmp_path / "none.csv")
    assert "No such file" in refused("none")
    (tmp_path / "folder.csv").mkdir()
    assert "is a directory" in refused(tmp_path / "folder.csv")
    message = "must end in .csv, .tsv, .txt, .dat, .npy or .parquet, or in .gz after .csv, .tsv, "
    for name in ("t.xlsx", "t", "t.gz", "t.npy.gz", "t.csv.gz.gz"):
        assert f"{name}: the name {message}" in refused(write(tmp_path / name, "1,2\n"))
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
    monkeypatch.setattr(_table, "read_text", fail)
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
        ("d", "t.csv has no column 'd', but 4 columns: a, b, b.1, c"),
        ("1", "t.csv has no column '1', but 4 columns"),
        ("a:d", "t.csv has no column 'd'"),
        ("b.2", "t.csv has no column 'b.2'"),
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


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], [0, 1, 2, 3, 4]),
        (["--columns", "b"], [1]),
        (["--columns", "b.3,a"], [4, 0]),
        (["--columns", "b.2:"], [2, 3, 4]),
        (["--exclude", "b,b.2"], [0, 3, 4]),
    ],
)
def test_columns_of_one_name(run, fitted, tmp_path, argv, expected):
    """They are told apart as in pandas, and a warning says how."""
    path = write(tmp_path / "t.csv", "a,b,b,b.1,b\n1,2,3,4,5\n7,6,9,8,5\n")
    code, out, err = run(path, *argv)
    assert code == 0
    assert np.array_equal(fitted[0][1], np.array([[1, 2, 3, 4, 5], [7, 6, 9, 8, 5]])[:, expected])
    titles = ", ".join(["a", "b", "b.2", "b.1", "b.3"][j] for j in expected)
    assert f"t.csv, {counted(len(expected), 'column')}: {titles}\n" in out
    assert err == (
        f"smallvar: warning: {path} has 3 columns 'b': 'b' is the first, the others are called "
        "'b.2', 'b.3'\n"
    )


def test_columns_without_names(ran, refused, fitted, tmp_path):
    path = write(tmp_path / "t.csv", ",a,,b\n1,2,3,4\n5,6,7,8\n")
    assert "column 1 has no name in the header" in refused(path)
    assert "column 1 has no name in the header" in refused(path, "--columns", ":b")
    ran(path, "--exclude", "")
    ran(path, "--columns", "a:b")
    assert np.array_equal(fitted[0][1], [[2, 4], [6, 8]])
    assert np.array_equal(fitted[1][1], [[2, 3, 4], [6, 7, 8]])


@pytest.mark.parametrize("suffix", ["csv", "npy", "parquet"])
@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--exclude", "2"], [0, 2, 3]),
        (["--exclude", " 4, 1 "], [1, 2]),
        (["--exclude", "2:3"], [0, 3]),
        (["--exclude", "2:"], [0]),
        (["--columns", "4,3,1", "--exclude", "3"], [3, 0]),
        (["--columns", "1:3", "--exclude", "3:4"], [0, 1]),
    ],
)
def test_excluded_columns(ran, fitted, tmp_path, suffix, argv, expected):
    X = np.arange(12.0).reshape(3, 4)
    path = tmp_path / f"t.{suffix}"
    if suffix == "npy":
        np.save(path, X)
    elif suffix == "csv":
        np.savetxt(path, X, delimiter=",")
    else:
        pytest.importorskip("pyarrow")
        pd = pytest.importorskip("pandas")
        pd.DataFrame(X, columns=list("1234")).to_parquet(path)
    ran(path, *argv)
    assert np.array_equal(fitted[0][1], X[:, expected])


def test_excluded_columns_by_name(ran, refused, fitted, tmp_path):
    path = write(tmp_path / "t.csv", 'a,b,"x,y",word\n1,2,3,u\n4,5,6,v\n')
    assert "--exclude" in refused("features", path)
    ran(path, "--exclude", 'word,"x,y"')
    assert np.array_equal(fitted[0][1], [[1, 2], [4, 5]])
    write(tmp_path / "i.csv", ",a,b\n0,1,2\n1,3,4\n")
    assert "leave it out with --exclude ''" in refused(tmp_path / "i.csv")
    report = ran(tmp_path / "i.csv", "--exclude", "")
    assert report["data"] == "i.csv, 2 columns: a, b"
    report = ran("features", path, "--exclude", "word", "--lam", 1)
    assert report["data"] == "t.csv, 3 columns: a, b, x,y"
    report = ran("track", path, "--time", "a", "--exclude", "a,word", "--lam", 1)
    assert report["data"] == "t.csv, 2 columns: b, x,y"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--exclude", "d"], "--exclude d: t.csv has no column 'd', but 3 columns: a, b, c"),
        (["--exclude", "a:d"], "--exclude a:d: t.csv has no column 'd'"),
        (["--exclude", "a,a"], "--exclude a,a: names a column twice"),
        (["--exclude", ""], "--exclude : names no column"),
        (["--exclude", "a:"], "--exclude a:: leaves no column of t.csv"),
        (["--columns", "b", "--exclude", "b"], "--exclude b: leaves no column of t.csv"),
    ],
)
def test_bad_exclusions(refused, no_fit, tmp_path, monkeypatch, argv, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.csv", "a,b,c\n1,2,3\n")
    assert message in refused("t.csv", *argv)


def test_exclusions_from_the_stand_ins(ran, refused):
    assert ran("--exclude", "alcohol:hue", "--lam", 1e6)["d"] == "2"
    assert ran("track", "--exclude", "x")["data"] == "moving groups, 1 column: y"
    assert "leaves no column of the stream" in refused("track", "--exclude", "x,y")


# Missing values


GAPS = "a,b,word\n1,2,u\n,3,u\n4,NA,u\n5,6,\n7,nan,u\n9,8,u\n"


def test_rows_with_missing_values_are_dropped(ran, fitted, tmp_path):
    path = write(tmp_path / "t.csv", GAPS)
    report = ran(path, "--exclude", "word", "--drop-missing", "--lam", 1)
    assert np.array_equal(fitted[0][1], [[1, 2], [5, 6], [9, 8]])
    assert (report["n"], report["dropped"]) == ("3", "3 rows with missing values")
    report = ran(path, "--columns", "a", "--drop-missing", "--lam", 1)
    assert np.array_equal(fitted[1][1], [[1], [4], [5], [7], [9]])
    assert (report["n"], report["dropped"]) == ("5", "1 row with missing values")
    report = ran(write(tmp_path / "t.csv", "a;b\n1,5;2\n?;3\n"), "--drop-missing", "--decimal", ",")
    assert np.array_equal(fitted[2][1], [[1.5, 2]])
    report = ran(write(tmp_path / "t.csv", "a\n1\n2\n"), "--drop-missing")
    assert (report["n"], report["dropped"]) == ("2", "0 rows with missing values")


def test_labels_of_dropped_rows(ran, tmp_path):
    path = write(tmp_path / "t.csv", GAPS)
    argv = [path, "--exclude", "word", "--drop-missing", "--lam", 5]
    out = tmp_path / "labels.csv"
    ran(*argv, "--out", out)
    i, j, k = smallvar.DPMeans(lam=5.0).fit([[1, 2], [5, 6], [9, 8]]).labels_
    assert out.read_text() == f'label\n{i}\n""\n""\n{j}\n""\n{k}\n'
    ran(*argv, "--out", tmp_path / "labels.npy")
    labels = np.load(tmp_path / "labels.npy")
    assert labels.dtype.kind == "i"
    assert list(labels) == [i, -1, -1, j, -1, k]
    pd = pytest.importorskip("pandas")
    frame = pd.read_csv(out)  # no row is skipped
    assert list(frame["label"].isna()) == [False, True, True, False, True, False]
    pytest.importorskip("pyarrow")
    ran(*argv, "--out", tmp_path / "labels.parquet")
    frame = pd.read_parquet(tmp_path / "labels.parquet")
    assert str(frame["label"].dtype) == "Int64"
    assert frame["label"].tolist() == [i, pd.NA, pd.NA, j, pd.NA, k]


@pytest.mark.parametrize(("text", "kept"), [("x\n1\n\n3\n\n", 2), ('x\n""\n1\n-\n3\n', 2)])
def test_gaps_in_a_single_column(ran, tmp_path, text, kept):
    out = tmp_path / "labels.csv"
    report = ran(write(tmp_path / "t.csv", text), "--drop-missing", "--lam", 9, "--out", out)
    assert report["n"] == str(kept)
    assert out.read_text().count("0\n") == kept
    assert out.read_text().count('""\n') == len(text.strip().splitlines()) - 1 - kept


@pytest.mark.parametrize("k", [1, 2])
def test_features_of_dropped_rows(ran, tmp_path, k):
    path = write(tmp_path / "t.csv", "a,b\n9,0\n,1\n0,9\n9,0\n")
    argv = ["features", path, "--drop-missing", "--n-components", k]
    report = ran(*argv, "--out", tmp_path / "z.csv")
    assert (report["n"], report["dropped"]) == ("3", "1 row with missing values")
    ran(*argv, "--out", tmp_path / "z.npy")
    Z = np.load(tmp_path / "z.npy")
    assert Z.shape == (4, k)
    assert (Z[1] == -1).all() and (np.delete(Z, 1, axis=0) >= 0).all()
    header, *rows = (tmp_path / "z.csv").read_text().splitlines()
    assert rows.pop(1) == {1: '""', 2: ","}[k]
    assert rows == [",".join(map(str, row)) for row in np.delete(Z, 1, axis=0)]
    assert ran("features", path, "--drop-missing", "--path", "2")["dropped"].startswith("1 row")
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    ran(*argv, "--out", tmp_path / "z.parquet")
    frame = pd.read_parquet(tmp_path / "z.parquet")
    assert ",".join(frame.columns) == header
    assert np.array_equal(frame.fillna(-1), Z)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_gaps_in_arrays(ran, refused, fitted, tmp_path, dtype):
    X = np.array([[1, 2], [np.nan, 3], [4, 5]], dtype=dtype)
    np.save(tmp_path / "t.npy", X)
    report = ran(tmp_path / "t.npy", "--drop-missing", "--lam", 1)
    assert report["dropped"] == "1 row with missing values"
    assert fitted[0][1].dtype == X.dtype
    assert np.array_equal(fitted[0][1], X[[0, 2]])
    np.save(tmp_path / "t.npy", [[np.inf, 1]])
    assert "row 1, column 1: infinite" in refused(tmp_path / "t.npy", "--drop-missing")
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": pd.array([1, None, 4], dtype="Int64"), "b": X[:, 1]})
    frame.to_parquet(tmp_path / "t.parquet")
    ran(tmp_path / "t.parquet", "--drop-missing", "--lam", 1)
    assert np.array_equal(fitted[1][1], X[[0, 2]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,x\n", "column b ('x') not numeric"),
        ("a,b\n1,2\n,x\n", "line 3, column b: 'x' is not a number"),
        ("a,b\n1,2\nNA,inf\n", "line 3, column b: infinite value"),
        ("a,b\n1,2\n3\n", "line 3: 1 cell, but 2 in line 1"),
        ("a,b\n1,\n,2\n", "--drop-missing leaves no row, each has a missing value"),
    ],
)
def test_what_is_not_missing_is_not_dropped(refused, no_fit, tmp_path, text, message):
    assert message in refused(write(tmp_path / "t.csv", text), "--drop-missing")


@pytest.mark.parametrize("dates", [False, True])
def test_missing_times(ran, refused, tmp_path, dates):
    times = ["2024-01-31", "2024-02-02"] if dates else ["1", "3"]
    rows = [",1", f"{times[1]},2", f"{times[0]},3", "NA,4", f"{times[0]},"]
    path = write(tmp_path / "t.csv", "t,x\n" + "\n".join(rows))
    argv = ["track", path, "--time", "t", "--lam", 9, "--drop-missing"]
    report = ran(*argv, "--out", tmp_path / "c.csv")
    assert report["steps"] == f"2 (t from {times[0]} to {times[1]})"
    assert (report["n"], report["dropped"]) == ("2", "3 rows with missing values")
    assert (tmp_path / "c.csv").read_text() == 'cluster\n""\n0\n0\n""\n""\n'
    write(path, "t,x\n,1\n,2\n")
    assert "leaves no row" in refused(*argv)
    write(path, f"t,x\n,1\n{times[0]},2\nnoon,3\n")
    assert f"times must be {'dates' if dates else 'numbers'} like those before" in refused(*argv)
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    moments = pd.Series([None, *times, None, times[0]])
    moments = pd.to_datetime(moments) if dates else moments.astype(float)
    frame = pd.DataFrame({"t": moments, "x": [1, 2, 3, 4, None]})
    frame.to_parquet(tmp_path / "t.parquet")
    report = ran("track", tmp_path / "t.parquet", *argv[2:])
    assert report["steps"] == f"2 (t from {times[0]} to {times[1]})"


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
    assert message in refused("features", tmp_path / "t.npy")


def test_gap_far_into_an_array(refused, no_fit, tmp_path):
    X = np.zeros((700_000, 3), dtype="f4")
    X[650_000, 1] = np.nan
    np.save(tmp_path / "t.npy", X)
    assert "row 650001, column 2: missing value" in refused("features", tmp_path / "t.npy")


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
    assert "t.parquet: column c (" in refused("features", path)
    report = ran(path, "--columns", "b,d,a")
    assert np.array_equal(fitted[-1][1], [[5, 1, 1], [6, 0, 2]])
    assert report["data"] == "t.parquet, 3 columns: b, d, a"

    frame[["a"]].astype("f4").to_parquet(path)
    ran(path)
    assert fitted[-1][1].dtype == np.float32

    pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}).to_parquet(path)
    assert "row 2, column a: missing value" in refused("features", path)

    path.write_bytes(path.read_bytes()[:-4])
    assert "t.parquet: " in refused(path)


def test_parquet_without_pandas(refused, no_fit, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    message = refused(write(tmp_path / "t.parquet", "PAR1"))
    assert "needs pandas and pyarrow: pip install 'smallvar[parquet]'" in message


# Scale


@pytest.fixture
def uneven(tmp_path):
    """Two clusters that only the narrow column tells apart, and a constant column."""
    rng = np.random.default_rng(0)
    narrow = np.repeat([0.0, 1.0], 20) + 0.01 * rng.normal(size=40)
    X = np.column_stack([1000 * rng.random(40), narrow, np.full(40, 0.1)])
    np.savetxt(
        tmp_path / "u.csv", X, delimiter=",", header="wide,narrow,same", comments="", fmt="%.17g"
    )
    return tmp_path / "u.csv", X


def test_scaled_columns(ran, fitted, uneven, tmp_path):
    path, X = uneven
    report = ran(path, "--scale", "--guess", 2, "--out", tmp_path / "labels.csv")
    Z = fitted[0][1]
    assert Z[:, :2] == pytest.approx((X - X.mean(axis=0))[:, :2] / X.std(axis=0)[:2])
    assert np.abs(Z[:, 2]).max() < 1e-12
    assert report["scaled"] == (
        "each column to mean 0 and standard deviation 1, but 1 constant column; "
        "lam is in these units"
    )
    lam = smallvar.farthest_first_lambda(Z, 2)
    assert float(report["lam"].split()[0]) == pytest.approx(lam, rel=1e-7)
    labels = np.loadtxt(tmp_path / "labels.csv", skiprows=1, dtype=int)
    assert np.array_equal(labels, smallvar.DPMeans(lam=lam).fit(Z).labels_)
    assert "but" not in ran(path, "--scale", "--columns", "wide,narrow", "--lam", 2)["scaled"]
    assert "scaled" not in ran(path, "--columns", "narrow")


@pytest.mark.parametrize("dtype", ["f4", "i8"])
def test_scaled_arrays_far_from_zero(ran, fitted, tmp_path, dtype):
    X = np.random.default_rng(0).integers(0, 100, (50, 3)).astype(dtype) + np.array(10_000, dtype)
    np.save(tmp_path / "t.npy", X)
    ran(tmp_path / "t.npy", "--scale")
    Z = fitted[0][1]
    assert Z.dtype == (np.float32 if dtype == "f4" else np.float64)
    assert pytest.approx((X - X.mean(axis=0)) / X.std(axis=0), abs=1e-3) == Z
    assert Z.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-3)


@pytest.mark.parametrize("command", [[], ["track", "--time", "same"]])
def test_warning_of_uneven_columns(run, uneven, command):
    path, X = uneven
    code, out, err = run(*command, path, "--columns", "wide:same", "--lam", 1e4)
    wide, narrow = X[:, :2].std(axis=0)
    assert code == 0
    assert "objective" in out
    assert err == (
        f"smallvar: warning: column wide (standard deviation {wide:.4g}) is spread "
        f"{wide / narrow:,.0f} times as wide as column narrow ({narrow:.4g}), which hardly counts "
        "in the distances; --scale evens them out\n"
    )
    assert run(*command, path, "--columns", "wide:same", "--scale", "--lam", 100)[2] == ""
    assert run(*command, path, "--columns", "narrow:same", "--lam", 100)[2] == ""


@pytest.mark.parametrize(("factor", "warned"), [(9.9, False), (10.1, True)])
def test_tenfold_is_uneven(run, tmp_path, factor, warned):
    x = np.random.default_rng(0).normal(size=200)
    np.save(tmp_path / "t.npy", np.column_stack([x, factor * x[::-1]]))
    err = run(tmp_path / "t.npy")[2]
    assert ("column 2 " in err and "10 times as wide as column 1 " in err) == warned
    assert bool(err) == warned
    assert run("features", tmp_path / "t.npy", "--lam", 1e9)[2] == ""


def test_of_many_rows_some_tell_the_spread(run, tmp_path):
    X = np.random.default_rng(0).normal(size=(250_000, 2)).astype("f4") * [1, 100]
    np.save(tmp_path / "t.npy", X)
    assert "column 2" in run(tmp_path / "t.npy", "--lam", 1e10)[2]


def test_values_too_large_to_be_scaled(refused, no_fit, tmp_path):
    np.save(tmp_path / "t.npy", [[1.0, 1e200], [2.0, -1e200]])
    message = refused(tmp_path / "t.npy", "--scale")
    assert "--scale: the values of column 2 are too large to be squared" in message


def test_no_scale_for_features(refused, no_fit, uneven):
    assert "unrecognized arguments: --scale" in refused("features", uneven[0], "--scale")


def test_tracks_of_scaled_columns(ran, stream, tmp_path):
    path, X, times = stream
    argv = ["track", path, "--time", "t", "--scale", "--lam", 0.5]
    report = ran(*argv, "--tracks", tmp_path / "tracks.csv")
    assert report["scaled"].startswith("each column to mean 0 and standard deviation 1;")
    scaler = StandardScaler().fit(X)
    model = smallvar.DynamicMeans(lam=0.5, random_state=0).fit(scaler.transform(X), times=times)
    rows = np.loadtxt(tmp_path / "tracks.csv", delimiter=",", skiprows=1)
    for cluster, track in model.tracks_.items():
        written = rows[rows[:, 1] == cluster]
        assert written[:, 0] == pytest.approx(model.times_[track[:, 0].astype(int)])
        assert written[:, 2:] == pytest.approx(X.mean(axis=0) + track[:, 1:] * X.std(axis=0))
    lam = ran("track", path, "--time", "t", "--scale", "--guess", 3)["lam"]
    assert float(lam.split()[0]) < 1


@pytest.mark.parametrize("d", [1, 2, 3])
def test_pictures_of_scaled_columns(d):
    pytest.importorskip("matplotlib")
    X, data = table(300, d, 3)
    scaler = StandardScaler().fit(X)
    Z = scaler.transform(X)
    model = smallvar.DPMeans(lam=2.0).fit(Z)
    figure = _picture.picture(data, model, scaler)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    points, centers = (np.asarray(drawn.get_offsets()) for drawn in axes.collections)
    assert ", columns scaled\n" in axes.get_title()
    means = np.array([X[model.labels_ == k].mean(axis=0) for k in range(model.n_clusters_)])
    if d < 3:  # in the units of the data
        assert np.array_equal(np.sort(points[:, 0]), np.sort(X[:, 0]))
        assert centers[:, :d] == pytest.approx(means, rel=1e-6)
    else:
        assert axes.get_xlabel().startswith("discriminant axis")
        # clusters have variance 1 along the axes, and their centers are the means of their points
        assert points.mean(axis=0) == pytest.approx(
            np.bincount(model.labels_) @ centers / len(Z), abs=1e-9
        )


@pytest.mark.parametrize("d", [1, 2])
def test_pictures_of_scaled_tracks(d):
    pytest.importorskip("matplotlib")
    data, _ = walkers(5, d)
    scaler = StandardScaler().fit(data.X)
    model = smallvar.DynamicMeans(lam=0.5, t_q=10, k_tau=1.5)
    model.fit(scaler.transform(data.X), times=data.times)
    figure = _picture.track_picture(data, model, scaler)
    figure.draw_without_rendering()
    begins = np.asarray(figure.axes[0].collections[3].get_offsets())[:, int(d == 1)]
    assert begins == pytest.approx(10.0 * np.arange(5))
    assert ", columns scaled, 6 time steps" in figure.axes[0].get_title()


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
    assert np.array_equal(labels, smallvar.DPMeans(lam=1.0).fit(X).labels_)


def test_labels_in_other_formats(ran, blobs, tmp_path):
    expected = smallvar.DPMeans(lam=60.0).fit(blobs[1]).labels_
    ran(blobs[0], "--lam", "60", "--out", tmp_path / "labels.NPY")
    labels = np.load(tmp_path / "labels.NPY")
    assert labels.shape == (60,)
    assert np.array_equal(labels, expected)
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    ran(blobs[0], "--lam", "60", "--out", tmp_path / "labels.parquet")
    frame = pd.read_parquet(tmp_path / "labels.parquet")
    assert list(frame.columns) == ["label"]
    assert frame["label"].dtype.kind == "i"
    assert np.array_equal(frame["label"], expected)
    ran("track", blobs[0], "--time", "x", "--lam", 60, "--out", tmp_path / "labels.parquet")
    assert list(pd.read_parquet(tmp_path / "labels.parquet").columns) == ["cluster"]


def test_assignments_in_other_formats(ran, sums, tmp_path):
    argv = ["features", sums[0], "--n-components", 3]
    expected = smallvar.KFeatures(3, random_state=0).fit(sums[1]).assignments_
    ran(*argv, "--out", tmp_path / "z.npy")
    assert np.array_equal(np.load(tmp_path / "z.npy"), expected)
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    ran(*argv, "--out", tmp_path / "z.parquet")
    frame = pd.read_parquet(tmp_path / "z.parquet")
    assert list(frame.columns) == ["feature_0", "feature_1", "feature_2"]
    assert np.array_equal(frame, expected)
    ran("features", sums[0], "--lam", "1e9", "--out", tmp_path / "none.parquet")
    assert pd.read_parquet(tmp_path / "none.parquet").shape[1] == 0


def test_labels_on_standard_output(run, blobs, sums, stream, tmp_path):
    for argv in (
        [blobs[0], "--lam", 60],
        ["features", sums[0], "--lam", 20, "--verbose"],
        ["track", stream[0], "--time", "t", "--lam", 4],
    ):
        run(*argv, "--out", tmp_path / "expected.csv")
        code, out, err = run(*argv, "--out", "-")
        assert (code, out) == (0, (tmp_path / "expected.csv").read_text())
        assert re.search(r"^(labels|assignments) +standard output$", err, re.M)
        assert re.search(r"^objective +", err, re.M)
    code, out, err = run("--lam", 1e6, "--out", "-")  # what stands in for data is no label, either
    assert out == "label\n" + "0\n" * 178
    assert "No DATA given" in err
    code, out, err = run(blobs[0], "--lam", 60)  # the next report is where it was
    assert "objective" in out
    assert err == ""


@pytest.mark.parametrize("name", ["labels.txt", "labels", "labels.csv.gz", "csv"])
@pytest.mark.parametrize("command", [[], ["features"], ["track", "--time", "x"]])
def test_labels_in_unknown_formats(refused, no_fit, blobs, tmp_path, name, command):
    message = refused(*command, blobs[0], "--out", tmp_path / name)
    assert f"{name}: the name must end in .csv, .npy or .parquet, or be -" in message


def test_parquet_is_written_with_pandas(refused, no_fit, blobs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = refused(blobs[0], "--out", tmp_path / "labels.parquet")
    assert "needs pandas and pyarrow: pip install 'smallvar[parquet]'" in message


@pytest.mark.parametrize(("option", "suffix"), [("--out", ".csv"), ("--plot", ".png")])
def test_targets_are_tried_before_the_fit(refused, no_fit, blobs, tmp_path, option, suffix):
    path, _ = blobs
    before = sorted(os.listdir(tmp_path))
    folder = f"folder{suffix}"
    (tmp_path / folder).mkdir()
    for name, message in [
        (f"none/labels{suffix}", "there is no folder"),
        (folder, "not a file that can be replaced"),
        ("x" * 300 + suffix, "name too long"),
    ]:
        message = re.escape(f"smallvar: {option} {tmp_path / name}: ") + f".*{message}"
        assert re.match(message, refused(path, option, tmp_path / name), re.I)
    (tmp_path / f"link{suffix}").symlink_to(path)
    assert "this would overwrite the data" in refused(path, option, tmp_path / f"link{suffix}")
    (tmp_path / f"link{suffix}").unlink()
    (tmp_path / f"null{suffix}").symlink_to(os.devnull)
    null = refused(path, option, tmp_path / f"null{suffix}")
    assert "not a file that can be replaced" in null
    (tmp_path / f"null{suffix}").unlink()
    assert sorted(os.listdir(tmp_path)) == sorted([*before, folder])
    assert path.stat().st_size > 1000


def test_out_and_plot_differ(refused, no_fit, blobs, tmp_path):
    write(tmp_path / "a.png", "old")
    (tmp_path / "a.csv").symlink_to(tmp_path / "a.png")
    message = refused(blobs[0], "--out", tmp_path / "a.csv", "--plot", tmp_path / "a.png")
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

    def write_half(file, titles, labels):
        file.write(b"label\n0\n")
        raise error

    monkeypatch.setattr(_cluster, "write_labels", write_half)
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
    return X, _table.Table(X, [f"name {i}" for i in range(d)], "t.npy")


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
    figure = _picture.picture(data, model)
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
        if model.n_clusters_ > 2:
            assert axes.get_xlabel().startswith("discriminant axis 1 (")
        # a center lies in the middle of its points in the picture, too
        for center, color in zip(centers, cluster_colors(model.n_clusters_), strict=True):
            own = (colors[:, :3] == color).all(axis=1)
            assert points[own].mean(axis=0) == pytest.approx(center, abs=1e-9)


def test_identical_points_can_be_drawn():
    pytest.importorskip("matplotlib")
    for d in (1, 2, 3):
        X = np.full((20, d), 1e6)
        figure = _picture.picture(_table.Table(X, ["x"] * d, "t.npy"), smallvar.DPMeans().fit(X))
        figure.draw_without_rendering()
        assert "K = 1," in figure.axes[0].get_title()


def test_pictures_say_how_the_number_was_chosen():
    pytest.importorskip("matplotlib")
    X, data = table(300, 2, 3)
    for lam, words in (
        ("auto", "K = 3, chosen from the data, lam"),
        (500.0, "K = 3, lam = 500;"),
    ):
        figure = _picture.picture(data, smallvar.DPMeans(lam=lam, random_state=0).fit(X))
        assert words in figure.axes[0].get_title()
    figure = _picture.picture(data, smallvar.DPMeans(n_clusters=2, random_state=0).fit(X))
    assert "K = 2, given, lam" in figure.axes[0].get_title()


@pytest.mark.parametrize("suffix", ["png", "PDF", "svg"])
@pytest.mark.parametrize("length", [[], ["2"]])
def test_pictures_of_a_path_are_written(run, blobs, tmp_path, suffix, length):
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"path.{suffix}"
    code, out, err = run(blobs[0], "--path", *length, "--plot", picture)
    assert (code, err) == (0, "")
    assert re.search(rf"^picture +{re.escape(str(picture))}$", out, re.M)
    start = {"png": b"\x89PNG\r\n", "PDF": b"%PDF-", "svg": b"<?xml"}[suffix]
    assert picture.read_bytes().startswith(start)
    assert picture.stat().st_size > 5000


def test_picture_of_the_path_of_clusters(iris):
    pytest.importorskip("matplotlib")
    X = iris[1]
    path = smallvar.lambda_path(X, random_state=0)
    choice = _choice.Choice(path, None)
    data = _table.Table(X, list("abcd"), "$t_{.npy")
    figure = _picture.merge_path_picture(data, choice)
    figure.draw_without_rendering()
    above, middle, below = figure.axes
    expected = np.column_stack([path.n_clusters, path.criterion - path.criterion.min()])
    assert np.array_equal(above.lines[0].get_xydata(), expected)
    expected = np.column_stack([path.n_clusters, path.inertia])
    assert np.array_equal(middle.lines[0].get_xydata(), expected)
    for axes in (above, middle):
        (ring,) = [drawn for drawn in axes.collections if drawn.get_label() == "K = 3, chosen"]
        assert ring.get_offsets()[0][0] == 3
    others, chosen = (lines.get_segments() for lines in below.collections)
    ((x, low), (_, high)) = chosen[0]
    assert (x, low, high) == (3, path.lam_low[2], path.lam_high[2])
    shown = path.n_clusters[path.lam_low < path.lam_high]
    assert sorted([segment[0][0] for segment in others] + [3]) == shown.tolist()
    (tie,) = above.patches
    assert tie.get_label() == "about as good"
    first, second = above.get_title().split("\n")
    assert first == "$t_{.npy: n = 150, d = 4"
    assert re.fullmatch(r"K = 3(, (not )?clear.*)?", second)
    choice.confidence = 0.9
    above = _picture.merge_path_picture(data, choice).axes[0]
    assert above.get_title().endswith("\nK = 3, clear, confidence 0.90")
    above = _picture.merge_path_picture(data, choice, scaler=object()).axes[0]
    assert above.get_title().startswith(f"{first}, columns scaled\n")


@pytest.mark.parametrize("X", [np.ones((5, 2)), [[0.0, 1.0]], [[0.0, 1.0], [5.0, 2.0]]])
def test_picture_of_a_path_of_few_rows(X):
    pytest.importorskip("matplotlib")
    X = np.array(X)
    choice = _choice.Choice(smallvar.lambda_path(X, random_state=0), None)
    figure = _picture.merge_path_picture(_table.Table(X, ["a", "b"], "t.npy"), choice)
    figure.draw_without_rendering()
    assert "K = 1, too few distinct rows" in figure.axes[0].get_title()
    ticks = figure.axes[2].get_xticks()
    assert np.array_equal(ticks, np.round(ticks))


def test_of_many_points_some_are_drawn():
    pytest.importorskip("matplotlib")
    X, data = table(60_000, 2, 3)
    figure = _picture.picture(data, smallvar.DPMeans(lam=500.0).fit(X))
    assert len(figure.axes[0].collections[0].get_offsets()) == 50_000
    assert "n = 60,000, 50,000 of them drawn" in figure.axes[0].get_title()


def test_of_many_columns_fewer_points_are_drawn(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(_base, "MAX_VALUES", 4500)
    X, data = table(2000, 3, 3)
    figure = _picture.picture(data, smallvar.DPMeans(lam=500.0).fit(X))
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


@pytest.mark.parametrize(
    ("command", "noun"),
    [
        ([], "clusters"),
        (["--path"], "path"),
        (["features", "--lam", "20"], "features"),
        (["features", "--path"], "path"),
        (["track", "--time", "a"], "tracks"),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.x.CSV.gz", "t"])
def test_picture_beside_the_data(run, sums, tmp_path, monkeypatch, command, noun, name):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    data, picture = Path("folder", name), Path("folder", f"{name.partition('.C')[0]}-{noun}.png")
    data.write_bytes(sums[0].read_bytes())
    if name.endswith(".gz"):
        data.write_bytes(gzip.compress(data.read_bytes()))
    elif name == "t":
        data, picture = sums[0], tmp_path / f"sums-{noun}.png"
    else:
        picture = Path("folder", f"t-{noun}.png")
    code, out, _ = run(*command, data, "--plot")
    assert code == 0
    assert re.search(rf"^picture +{picture}$", out, re.M)
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    picture.write_bytes(picture.read_bytes() + b"old")
    assert run(*command, "--plot", data)[0] == 0  # and again: it is ours
    assert not picture.read_bytes().endswith(b"old")


def test_picture_beside_no_file(run, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert "smallvar-clusters.png" in run("--lam", "1e6", "--plot")[1]
    assert os.listdir(tmp_path) == ["smallvar-clusters.png"]


def test_pictures_of_others_are_not_replaced_unless_named(run, refused, blobs, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    picture = tmp_path / "blobs-clusters.png"
    for text in (b"photo", b"", b"\x89PNG\r\n\x1a\n" + b"tEXtSoftware\0Matplotlib"):
        picture.write_bytes(text)
        message = refused(blobs[0], "--plot")
        assert f"{picture} is there, and no picture of smallvar; name another" in message
        assert picture.read_bytes() == text
    assert matplotlib
    assert run(blobs[0], "--plot", picture)[0] == 0
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")


def test_data_after_the_picture_option(refused, blobs):
    assert "none.csv: No such file" in refused("--plot", "none.csv")
    assert "--plot x.txt: the name must end in .png" in refused(blobs[0], "--plot", "x.txt")
    assert "would overwrite the data" in refused("--path", blobs[0], "--plot", blobs[0])


def test_pictures_of_names_with_control_characters(ran, blobs, tmp_path, monkeypatch):
    """matplotlib has no letters for them, and would warn of each."""
    monkeypatch.chdir(tmp_path)
    os.rename(blobs[0], "a\x1b[2J.csv")
    ran("a\x1b[2J.csv", "--plot")
    ran("a\x1b[2J.csv", "--path", "--plot", "b\x1b.svg")
    ran("features", "a\x1b[2J.csv", "--plot", "c\x1b.pdf", "--lam", 9)
    ran("features", "a\x1b[2J.csv", "--plot", "d\x1b.png", "--path", 2)
    ran("track", "a\x1b[2J.csv", "--plot", "e\x1b.png", "--time", "x", "--lam", 9)
    ran("a\x1b[2J.csv", "--plot", "f\x1b.png", "--kinds", "x=normal")


def test_picture_of_another_kind(refused, no_fit, blobs, tmp_path):
    message = refused(blobs[0], "--plot", tmp_path / "picture.txt")
    assert "the name must end in .png, .pdf or .svg" in message
    assert not (tmp_path / "picture.txt").exists()


def test_picture_without_matplotlib(refused, no_fit, blobs, tmp_path, monkeypatch):
    for module in ("matplotlib", "matplotlib.colors", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    message = refused(blobs[0], "--plot", tmp_path / "picture.png")
    assert "pip install matplotlib" in message


# Features


def read_csv(path):
    """Rows of cells of a csv file, the header first."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("penalty", [["--lam", "20"], []])
def test_features_reported_are_those_written(ran, sums, tmp_path, penalty):
    path, X = sums
    out, components = tmp_path / "z.csv", tmp_path / "a.csv"
    report = ran("features", path, *penalty, "--out", out, "--components", components)
    lam = 20.0 if penalty else "auto"
    model = smallvar.BPMeans(lam=lam, random_state=0).fit(X)
    k = model.n_components_
    header, *rows = read_csv(out)
    Z = np.array(rows, dtype=int)
    assert header == [f"feature_{i}" for i in range(k)]
    assert np.array_equal(Z, model.assignments_)
    header, *rows = read_csv(components)
    A = np.array(rows, dtype=float)
    assert header == list("abcdef")
    assert np.array_equal(A, model.components_)  # to the last bit
    error = ((X - Z @ A) ** 2).sum()
    share = 1 - error / (X**2).sum()
    assert report["data"] == "sums.csv, 6 columns: a, b, c, d, e, f"
    assert (report["n"], report["d"], report["K"]) == ("30", "6", str(k))
    origin = "given" if penalty else "chosen from the data"
    assert report["lam"] == f"{model.lam_:.8g} ({origin})"
    assert (report["starts"], report["sweeps"]) == ("at most 10", str(model.n_iter_))
    value, words = report["objective"].split(maxsplit=1)
    assert float(value) == pytest.approx(error + model.lam_ * k, rel=1e-9)
    assert words == "(error + lam K)"
    value, words = report["error"].split(maxsplit=1)
    assert float(value) == pytest.approx(error, rel=1e-9)
    assert words == f"({share:.1%} of ||X||^2 explained)"
    assert report["users"] == ", ".join(map(str, Z.sum(axis=0)))
    owned = np.unique(Z.sum(axis=1), return_counts=True)
    having = ", ".join(f"{rows} with {count}" for count, rows in zip(*owned, strict=True))
    assert report["rows"] == f"{having} features"
    assert re.fullmatch(r"\d+\.\d+ reading, \d+\.\d+ fitting", report["seconds"])
    assert (report["assignments"], report["components"]) == (str(out), str(components))
    assert "picture" not in report
    if penalty:
        assert k == 3


def test_a_given_number_of_features(ran, sums, tmp_path):
    path, X = sums
    report = ran("features", path, "--n-components", 2, "--out", tmp_path / "z.csv")
    model = smallvar.KFeatures(2, random_state=0).fit(X)
    assert report["K"] == "2 (given)"
    assert not {"lam", "objective"} & set(report)
    assert float(report["error"].split()[0]) == pytest.approx(model.objective_, rel=1e-9)
    Z = np.loadtxt(tmp_path / "z.csv", delimiter=",", skiprows=1)
    assert np.array_equal(Z, model.assignments_)


def test_options_reach_the_feature_estimators(ran, run, sums, fitted):
    path, _ = sums
    ran("features", path)
    report = ran(
        *["features", path, "--lam", "3", "--algorithm", "stepwise", "--max-features", "4"],
        *["--starts", "5", "--swaps", "1", "--threads", "2", "--seed", "7"],
    )
    assert report["starts"] == "5 for each K, each with 1 swap"
    ran("features", path, "--n-components", "2", "--assign", "exact", "--starts", "5")
    run("features", path, "--n-components", "2", "--starts", "1", "--verbose")
    ran("features", path, "--lam", "3", "--algorithm", "collapsed", "--assign", "coordinate")
    capped = {"lam": 3.0, "algorithm": "collapsed", "max_features": 12, "assign": "exact"}
    options = ["--algorithm", "collapsed", "--max-features", "12", "--assign", "exact"]
    ran("features", path, "--lam", "3", *options)
    plain, chosen, exact, verbose, bits, rows = (model.get_params() for model, _ in fitted)
    assert rows == plain | capped
    always = {"random_state": 0}
    assert plain == smallvar.BPMeans(**always).get_params()
    assert chosen == plain | {
        "lam": 3.0,
        "algorithm": "stepwise",
        "max_features": 4,
        "n_init": 5,
        "n_swaps": 1,
        "n_threads": 2,
        "random_state": 7,
    }
    assert bits == plain | {"lam": 3.0, "algorithm": "collapsed", "assign": "coordinate"}
    few = {"n_components": 2, "random_state": 0}
    assert exact == smallvar.KFeatures(assign="exact", n_init=5, **few).get_params()
    assert verbose == smallvar.KFeatures(verbose=1, n_init=1, **few).get_params()


def test_features_of_few_rows(ran, tmp_path):
    report = ran("features", write(tmp_path / "few.csv", "0,1\n1,0\n9,9\n"))
    assert report["lam"].endswith("(chosen from the data)")


def test_features_of_the_digits(run, fitted, tmp_path):
    pytest.importorskip("matplotlib")
    few = ["--lam", "1e5", "--starts", "1"]
    code, out, err = run("features", *few, "--plot", tmp_path / "digits.png")
    assert (code, err) == (0, "")
    assert "scikit-learn" in out.splitlines()[0]
    assert "smallvar features FILE" in out.splitlines()[1]
    assert np.array_equal(fitted[0][1], load_digits().data)
    _, out, _ = run("features", *few, "--columns", "pixel_0_2:pixel_0_4")
    assert "3 columns: pixel_0_2, pixel_0_3, pixel_0_4" in out


def test_data_without_features(ran, tmp_path):
    pytest.importorskip("matplotlib")
    np.save(tmp_path / "t.npy", np.zeros((3, 2)))
    out, components = tmp_path / "z.csv", tmp_path / "a.csv"
    argv = ["--out", out, "--components", components, "--plot", tmp_path / "z.png"]
    report = ran("features", tmp_path / "t.npy", *argv)
    assert (report["K"], report["rows"]) == ("0", "3 with 0 features")
    assert report["error"] == "0 (100.0% of ||X||^2 explained)"
    assert "users" not in report
    assert out.read_bytes() == b"\n\n\n\n"
    assert components.read_bytes() == b"1,2\n"
    assert (tmp_path / "z.png").stat().st_size > 5000


def test_assignments_of_many_rows():
    Z = np.random.default_rng(0).integers(0, 2, (250_001, 3), dtype=np.int32)
    for k in (1, 3):
        file = io.BytesIO()
        _features.write_assignments(file, [f"feature_{i}" for i in range(k)], Z[:, :k])
        header, *rows = file.getvalue().decode().splitlines()
        assert header == ",".join(["feature_0", "feature_1", "feature_2"][:k])
        assert np.array_equal(np.array([row.split(",") for row in rows], dtype=int), Z[:, :k])


def test_titles_are_quoted_where_they_must(ran, tmp_path):
    path = write(tmp_path / "t.csv", '"größe, in ""cm""";y\n1;2\n3;4\n')
    ran("features", path, "--n-components", 1, "--components", tmp_path / "a.csv")
    header, row = read_csv(tmp_path / "a.csv")
    assert header == ['größe, in "cm"', "y"]
    assert len(row) == 2


def test_users_are_cut_where_there_are_many(ran, tmp_path):
    X = np.repeat(np.eye(15), np.arange(15, 0, -1), axis=0)
    np.save(tmp_path / "t.npy", X)
    out = tmp_path / "z.csv"
    report = ran("features", tmp_path / "t.npy", "--n-components", 15, "--out", out)
    users = np.loadtxt(out, delimiter=",", skiprows=1, dtype=int).sum(axis=0)
    first, rest = ", ".join(map(str, users[:12])), users[12:]
    assert report["users"] == f"{first} and 3 more of {max(rest)} to {min(rest)} rows"


def test_rows_that_have_one_feature(ran, tmp_path):
    report = ran("features", write(tmp_path / "t.csv", "5,5\n5,5\n0,0\n"), "--lam", "1")
    assert report["rows"] == "1 with 0, 2 with 1 feature"


def test_verbose_features(run, sums):
    argv = ["features", sums[0], "--lam", "20", "--starts", "2"]
    _, quiet, _ = run(*argv)
    _, verbose, _ = run(*argv, "--verbose")
    more = verbose.splitlines()[: -len(quiet.splitlines())]
    assert len(more) >= 2
    assert all("objective" in line for line in more)


# The path of features


def path_rows(out):
    """The table that --path prints, as rows of words."""
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["K", "squared", "error"]
    return [line.split() for line in lines[1 : lines.index("")] if not line.startswith("   *")]


def test_path(run, sums):
    path, X = sums
    _, out, _ = run("features", path, "--path", "5", "--starts", "20", "--seed", "3")
    expected = smallvar.feature_path(X, 5, n_init=20, random_state=3)
    rows = path_rows(out)
    assert [int(row[0]) for row in rows] == [0, 1, 2, 3, 4, 5]
    columns = (expected.error, expected.lam_low, expected.lam_high)
    for row, error, low, high in zip(rows, *columns, strict=True):
        assert float(row[1]) == pytest.approx(error, rel=1e-7)
        assert row[2] == f"{1 - error / expected.error[0]:.1%}"
        limits = [np.nan if word == "-" else float(word) for word in row[3:5]]
        assert limits == pytest.approx([low, high], rel=1e-7, nan_ok=True)
    assert [row[0] for row in rows if row[-1] == "*"] == ["3"]
    low, high = expected.lam_low[3], expected.lam_high[3]
    verdict = f"K = 3, for lam from {low:.8g} to {high:.8g}: times {high / low:.4g}"
    assert re.search(rf"^widest +{re.escape(verdict)}$", out, re.M)
    chosen = f"K = {expected.best}, of the shortest description, with lam {expected.lam:.8g}"
    assert re.search(rf"^chosen +{re.escape(chosen)}$", out, re.M)
    assert re.search(r"^starts +20 for each K$", out, re.M)


def test_length_of_the_path(run, sums, refused, tmp_path):
    few = ["--starts", "1"]
    for argv in (["--path", sums[0]], [sums[0], "--path"]):
        assert len(path_rows(run("features", *argv, *few)[1])) == 11
    path = write(tmp_path / "t.csv", "1,2\n2,1\n5,7\n")
    for argv in (["--path"], ["--path", "99"], ["--path", "12", "--assign", "exact"]):
        assert len(path_rows(run("features", path, *argv, *few)[1])) == 4
    assert "at most 12" in refused("features", sums[0], "--path", "13", "--assign", "exact")
    with pytest.raises(ValueError, match=f"must be <= {_features.MOST_TRIED} where assign is"):
        smallvar.feature_path(sums[1], _features.MOST_TRIED + 1, assign="exact")


def test_path_to_an_exact_fit(run, tmp_path):
    X = np.array([[0, 0], [1, 0], [0, 1], [1, 1]]) @ np.array([[0.1, 0.7, 0], [0.3, 0, 1.9]])
    np.save(tmp_path / "t.npy", np.repeat(X, 3, axis=0))
    _, out, _ = run("features", tmp_path / "t.npy", "--path", "4")
    rows = path_rows(out)
    assert rows[2][:4] == ["2", "0", "100.0%", "0"]
    assert rows[2][-1] == "*"
    assert rows[3] == ["3", "0", "100.0%", "-", "-"]
    assert re.search(r"^widest +K = 2, without error, for lam up to ", out, re.M)


def test_path_of_nothing(run, tmp_path):
    np.save(tmp_path / "t.npy", np.zeros((3, 2)))
    pytest.importorskip("matplotlib")
    argv = ["--path", "2", "--plot", tmp_path / "path.png"]
    code, out, err = run("features", tmp_path / "t.npy", *argv)
    assert (code, err) == (0, "")
    assert "*" not in out
    assert re.search(r"^widest +none$", out, re.M)


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


# Arguments for features


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--lam", "-1"], "argument --lam: must be a number >= 0, got '-1'"),
        (["--lam", "0"], "lam"),
        (["--lam", "inf"], "lam must be finite, got inf"),
        (["--lam", "2", "--n-components", "3"], "not allowed with"),
        (["--lam", "2", "--path"], "not allowed with"),
        (["--n-components", "0"], "argument --n-components: must be an integer >= 1, got '0'"),
        (["--n-components", "31"], "n_components"),
        (["--n-components", "13", "--assign", "exact"], "12"),
        (["--path", "0"], "argument --path: must be an integer >= 1, got '0'"),
        (["--path", "2.5"], "argument --path: must be an integer >= 1, got '2.5'"),
        (["--path", "x"], "argument --path: must be an integer >= 1, got 'x'"),
        (["--starts", "0"], "argument --starts: must be an integer >= 1, got '0'"),
        (["--starts", "9" * 30], "argument --starts: must be <= "),
        (["--swaps", "-1"], "argument --swaps: must be an integer >= 0, got '-1'"),
        (["--max-features", "0"], "argument --max-features: must be an integer >= 1, got '0'"),
        (["--algorithm", "serial"], "invalid choice: 'serial'"),
        (["--assign", "exact"], "--assign has no meaning with a penalty"),
        (["--lam", "2", "--assign", "exact"], "--assign has no meaning with a penalty"),
        (
            ["--algorithm", "collapsed", "--assign", "exact"],
            "--assign exact needs --max-features of at most 12 with --algorithm collapsed",
        ),
        (
            ["--algorithm", "collapsed", "--assign", "exact", "--max-features", "13"],
            "--assign exact needs --max-features of at most 12 with --algorithm collapsed",
        ),
        (["--n-components", "2", "--algorithm", "sweep"], "--algorithm has no meaning with --n-"),
        (["--n-components", "2", "--max-features", "2"], "--max-features has no meaning with --n"),
        (["--path", "--algorithm", "sweep"], "--algorithm has no meaning with --path"),
        (["--path", "--max-features", "3"], "--max-features has no meaning with --path"),
        (["--path", "--out", "z.csv"], "--out has no meaning with --path"),
        (["--path", "--components", "a.csv"], "--components has no meaning with --path"),
        (["--path", "--shape", "2x3"], "--shape has no meaning with --path"),
        (["--shape", "2x3"], "--shape has no meaning without --plot"),
        (["--shape", "6"], "argument --shape: must be of the form 14x14, got '6'"),
        (["--shape", "2x"], "argument --shape: must be of the form 14x14, got '2x'"),
        (["--shape", "0x6"], "argument --shape: must be of the form 14x14, got '0x6'"),
        (["--n-clusters", "3"], "unrecognized arguments: --n-clusters 3 (see smallvar features -"),
        (["another.csv"], "unrecognized arguments: another.csv"),
    ],
)
def test_bad_arguments_for_features(refused, sums, argv, message):
    assert message in refused("features", sums[0], *argv)


def test_shape_that_does_not_fit(refused, no_fit, sums, tmp_path):
    pytest.importorskip("matplotlib")
    message = refused("features", sums[0], "--shape", "2x4", "--plot", tmp_path / "z.png")
    assert "--shape 2x4 is for 8 columns, but sums.csv has 6 columns: a, b" in message


def test_targets_of_features_are_tried_before_the_fit(refused, no_fit, sums, tmp_path):
    path, _ = sums
    assert "there is no folder" in refused("features", path, "--components", tmp_path / "x" / "a")
    assert "would overwrite the data" in refused("features", path, "--components", path)
    assert "would overwrite the data" in refused("features", "--path", path, "--plot", path)
    message = refused(
        "features", path, "--out", tmp_path / "z.csv", "--components", tmp_path / "z.csv"
    )
    assert "--out and --components both name" in message
    assert os.listdir(tmp_path) == [path.name]


def test_components_are_not_left_half_written(run, sums, tmp_path, monkeypatch):
    def write_half(file, titles, components):
        file.write(b"a,b\n")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_features, "write_rows", write_half)
    code, out, err = run("features", sums[0], "--components", tmp_path / "a.csv")
    assert (code, out) == (2, "")
    assert err.endswith("No space left on device\n")
    assert os.listdir(tmp_path) == [sums[0].name]


def test_help_for_features(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run("features", "--help")
    assert (code, err) == (0, "")
    for option in (
        *("--lam", "--n-components", "--path", "--algorithm", "--assign", "--starts", "--swaps"),
        *("--max-features", "--components", "--shape", "--columns", "--out", "--plot"),
        *("--threads", "--seed", "--verbose", "--version", "--show-config"),
        *("--exclude", "--drop-missing", "--decimal"),
    ):
        assert f"  {option}" in out
    assert "--scale" not in out  # features add up from 0, which is not to be moved
    words = " ".join(out.split())
    assert "random starts, of which the best is kept (default: at most 10, and no more" in words
    assert "default: 0, so that the same command gives the same result" in words
    assert out.count("\n  smallvar features ") == 3  # the examples
    assert all(len(line) <= 80 for line in out.splitlines())


# Pictures of features


def feature_model(k, d, n=60):
    """K features of d columns, some of them shared, as the command line would have them."""
    rng = np.random.default_rng(k)
    X = (rng.random((n, max(k, 1))) < 0.3) @ rng.normal(size=(max(k, 1), d))
    model = smallvar.KFeatures(k, n_init=1, random_state=0).fit(X)
    return X, _table.Table(X, [f"name {i}" for i in range(d)], "t.npy"), model


@pytest.mark.parametrize("k", [1, 5, 18, 40])
@pytest.mark.parametrize(("d", "shape"), [(4, None), (60, None), (12, (3, 4))])
def test_every_feature_is_drawn(k, d, shape):
    pytest.importorskip("matplotlib")
    _, data, model = feature_model(k, d)
    figure = _picture.feature_picture(data, model, shape)
    figure.draw_without_rendering()
    *panels, last = [axes for axes in figure.get_axes() if axes.get_title()]
    users = model.assignments_.sum(axis=0)
    assert len(panels) == k
    for i, axes in enumerate(panels):
        assert axes.get_title() == f"{i}: {users[i]} row{'' if users[i] == 1 else 's'}"
        if shape is not None:
            drawn = axes.images[0].get_array().ravel()
        elif d <= BARS:
            drawn = [bar.get_height() for bar in axes.patches]
        else:
            drawn = axes.lines[-1].get_ydata()
        assert np.array_equal(drawn, model.components_[i])
    Z = np.asarray(last.images[0].get_array())
    rows = [tuple(row) for row in model.assignments_]
    assert np.array_equal(Z, sorted(rows, reverse=True))
    share = 1 - model.objective_ / (data.X**2).sum()
    title = f"t.npy: n = 60, d = {d}\nK = {k}; {share:.1%} of the sum of squares explained"
    assert figure.get_suptitle() == title


@pytest.mark.long
def test_of_many_features_and_rows_some_are_drawn():
    pytest.importorskip("matplotlib")
    X, data, model = feature_model(41, 3, n=1000)
    model = smallvar.BPMeans(lam=1e-3, init=model.assignments_, max_features=41).fit(X)
    figure = _picture.feature_picture(data, model, None)
    figure.draw_without_rendering()
    *panels, last = [axes for axes in figure.get_axes() if axes.get_title()]
    users = model.assignments_.sum(axis=0)
    assert len(users) == 41
    left_out = set(range(41)) - {int(axes.get_title().partition(":")[0]) for axes in panels}
    assert [users[i] for i in left_out] == [users.min()]
    assert "K = 41, the 40 with the most rows drawn, lam = 0.001; " in figure.get_suptitle()
    Z = np.asarray(last.images[0].get_array())
    assert Z.shape == (400, 40)
    kept = model.assignments_[:, sorted(set(range(41)) - left_out)]
    assert Z.mean(axis=0) == pytest.approx(kept.mean(axis=0), abs=0.02)  # averages of rows


@pytest.mark.parametrize(("least", "colors"), [(0.0, "gray_r"), (-0.5, "RdBu_r")])
def test_scale_of_pictures(least, colors):
    pytest.importorskip("matplotlib")
    X = np.array([[least, 1.0, 0.0, 0.5]])
    model = smallvar.KFeatures(1, n_init=1, random_state=0).fit(X)
    figure = _picture.feature_picture(_table.Table(X, list("abcd"), "t.npy"), model, (2, 2))
    image = next(axes for axes in figure.get_axes() if axes.images).images[0]
    assert image.get_cmap().name == colors
    assert image.get_clim() == ((0.0, 1.0) if least == 0 else (-1.0, 1.0))


@pytest.mark.parametrize("suffix", ["png", "PDF", "svg"])
@pytest.mark.parametrize("argv", [["--lam", "20"], ["--lam", "20", "--shape", "2x3"], ["--path"]])
def test_pictures_of_features_are_written(ran, sums, tmp_path, suffix, argv):
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"picture.{suffix}"
    report = ran("features", sums[0], *argv, "--starts", "2", "--plot", picture)
    assert report["picture"] == str(picture)
    start = {"png": b"\x89PNG\r\n", "PDF": b"%PDF-", "svg": b"<?xml"}[suffix]
    assert picture.read_bytes().startswith(start)
    assert picture.stat().st_size > 5000


def test_digits_are_drawn_as_pictures(run, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    shapes = []
    draw = _features.feature_picture

    def recording(table, model, shape):
        shapes.append(shape)
        return draw(table, model, shape)

    monkeypatch.setattr(_features, "feature_picture", recording)
    argv = ["features", "--lam", "1e5", "--starts", "1", "--plot", tmp_path / "z.png"]
    for more in ([], ["--shape", "4x16"], ["--columns", "1:64"], ["--columns", "pixel_0_0:"]):
        run(*argv, *more)
    assert shapes == [(8, 8), (4, 16), None]


@pytest.mark.parametrize("exact", [False, True])
def test_picture_of_a_path(exact):
    pytest.importorskip("matplotlib")
    error = np.array([100.0, 60, 25, 20, 0 if exact else 10])
    low, high = envelope(range(5), error)
    low[low >= high] = np.nan
    path = FeaturePath(np.arange(5), error, low, high, np.zeros(5), 0, 1.0)
    figure = _picture.path_picture(_table.Table(np.zeros((7, 3)), list("abc"), "t.npy"), path, 2)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_yscale() == ("linear" if exact else "log")
    assert np.array_equal(axes.lines[0].get_xydata(), np.column_stack([np.arange(5), error]))
    some, none, mark = (np.asarray(drawn.get_offsets())[:, 0] for drawn in axes.collections)
    assert sorted([*some, *none]) == [0, 1, 2, 3, 4]
    assert list(none) == list(np.flatnonzero(np.isnan(low)))
    assert list(mark) == [2]
    assert axes.get_title() == "t.npy: n = 7, d = 3"


def test_names_of_columns_are_not_taken_for_formulas(ran, tmp_path):
    pytest.importorskip("matplotlib")
    path = write(tmp_path / "$a_{$.csv", "$x^{$,$y and a long name\n1,2\n3,4\n5,7\n")
    for argv in ([], ["--path"]):
        ran("features", path, *argv, "--plot", tmp_path / "picture.png")


# Tracks


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


def test_tracks_reported_are_those_written(ran, stream, tmp_path):
    path, X, times = stream
    out, tracks = tmp_path / "labels.csv", tmp_path / "tracks.csv"
    report = ran("track", path, "--time", "t", "--lam", "4", "--out", out, "--tracks", tracks)
    model = smallvar.DynamicMeans(lam=4.0, random_state=0).fit(X, times=times)
    header, *labels = out.read_text().splitlines()
    assert header == "cluster"
    assert np.array_equal(np.array(labels, dtype=int), model.labels_)
    check_tracks(tracks, model, ["x", "y"])
    assert tracks.read_text().splitlines()[4].startswith("100.5,0,")  # as in the file
    assert report["data"] == "s.csv, 2 columns: x, y"
    assert (report["n"], report["d"]) == (str(len(X)), "2")
    assert report["steps"] == "20 (t from 100 to 109.5)"
    assert report["lam"] == "4 (given)"
    assert report["t_q"] == f"6.8 (default; q = {model.q_:.8g})"
    assert report["k_tau"] == f"1.01 (default; tau = {model.tau_:.8g})"
    assert report["starts"] == "3 for each step"
    assert report["clusters"] == "3 ever seen, 2 alive at the end"
    assert report["events"] == "3 births, 1 death, 1 revival"
    value, words = report["objective"].split(maxsplit=1)
    assert float(value) == pytest.approx(model.step_objectives_.sum(), rel=1e-9)
    assert words == "(summed over the steps)"
    assert re.fullmatch(r"\d+\.\d+ reading, \d+\.\d+ fitting", report["seconds"])
    assert (report["labels"], report["tracks"]) == (str(out), str(tracks))
    assert "picture" not in report


@pytest.mark.parametrize(("argv", "guess"), [([], 8), (["--guess", 3], 3)])
def test_penalty_from_all_steps(ran, tmp_path, argv, guess):
    rng = np.random.default_rng(0)
    sizes = [2, 1, 15, 15, 9, 12, 15, 3]
    times = np.repeat(np.arange(8), sizes)
    X = rng.normal(size=(len(times), 2)) * np.repeat([0.01, 1, 5, 6, 7, 8, 9, 100], sizes)[:, None]
    np.save(tmp_path / "t.npy", np.column_stack([times, X]))
    lams = [
        smallvar.farthest_first_lambda(X[times == step], min(guess, sizes[step]))
        for step in range(8)
        if step != 1  # a single row has no distance to any other
    ]
    by_row = np.repeat(lams, [size for size in sizes if size != 1])
    expected = np.quantile(by_row, 0.5, method="inverted_cdf")
    value, origin = ran("track", tmp_path / "t.npy", "--time", 1, *argv)["lam"].split(maxsplit=1)
    assert float(value) == pytest.approx(expected, rel=1e-7)
    assert origin == (f"(farthest-first, median over the steps, for a guess of {guess} clusters)")


def test_penalty_of_steps_with_few_rows(ran, tmp_path):
    np.save(tmp_path / "t.npy", [[0, 1.0], [0, 3.0], [1, 1.0], [2, 2.0], [2, 2.0]])
    lam = ran("track", tmp_path / "t.npy", "--time", 1)["lam"]
    expected = smallvar.farthest_first_lambda([[1.0], [3.0]], 2)
    assert lam == f"{expected:g} (farthest-first, median over the steps, for a guess of 2 clusters)"
    np.save(tmp_path / "t.npy", [[0, 1.0], [1, 1.0], [2, 2.0]])
    assert ran("track", tmp_path / "t.npy", "--time", 1)["lam"].startswith("1 (")


def test_options_reach_the_dynamic_estimator(ran, run, stream, fitted):
    argv = ["track", stream[0], "--time", "t"]
    run(*argv)
    report = ran(*argv, "--lam", 3, "--t-q", "inf", "--k-tau", 2, "--threads", 2, "--seed", 7)
    assert report["t_q"] == "inf (given; q = 0)"
    assert report["k_tau"] == "2 (given; tau = 1)"
    report = ran(*argv, "--lam", 3, "--q", 0.5, "--tau", 0, "--starts", 5)
    assert (report["q"], report["tau"]) == ("0.5 (given)", "0 (given)")
    assert not {"t_q", "k_tau"} & set(report)
    assert report["starts"] == "5 for each step"
    _, out, _ = run(*argv, "--verbose")
    assert len(re.findall(r"^step \d+: ", out, re.M)) == 20
    plain, chosen, other, verbose = (estimator.get_params() for estimator, _ in fitted)
    assert plain == smallvar.DynamicMeans(lam=plain["lam"], random_state=0).get_params()
    more = {"lam": 3.0, "t_q": np.inf, "k_tau": 2.0, "n_threads": 2, "random_state": 7}
    assert chosen == plain | more
    assert other == plain | {"lam": 3.0, "q": 0.5, "tau": 0.0, "n_init": 5}
    assert verbose == plain | {"verbose": 1}


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--time", "t"], [0, 2]),
        (["--time", " t ", "--columns", "y,x"], [2, 0]),
        (["--time", "t", "--columns", "t:"], [1, 2]),
        (["--time", "x"], [1, 2]),
    ],
)
def test_column_of_times(ran, stream, fitted, argv, expected):
    rows = np.loadtxt(stream[0], delimiter=",", skiprows=1)
    report = ran("track", stream[0], *argv, "--lam", 4)
    assert np.array_equal(fitted[0][1], rows[:, expected])
    assert report["data"].endswith(": " + ", ".join("xty"[i] for i in expected))
    assert int(report["steps"].split()[0]) == len(np.unique(rows[:, "xty".index(argv[1].strip())]))


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1"])
def test_times_by_position(ran, fitted, tmp_path, dtype):
    X = np.array([[3, 7, 1], [4, 5, 2], [5, 7, 3]], dtype=dtype)
    np.save(tmp_path / "t.npy", X)
    tracks = tmp_path / "tracks.csv"
    report = ran("track", tmp_path / "t.npy", "--time", "2", "--lam", "1", "--tracks", tracks)
    assert np.array_equal(fitted[0][1], X[:, [0, 2]])
    assert report["data"] == "t.npy, 2 columns: 1, 3"
    assert report["steps"] == "2 (column 2 from 5 to 7)"
    check_tracks(tracks, fitted[0][0], ["1", "3"])
    np.savetxt(tmp_path / "t.csv", X, delimiter=",", fmt="%d")
    report = ran("track", tmp_path / "t.csv", "--time", "2", "--lam", "1", "--tracks", tracks)
    assert report["steps"] == "2 (column 2 from 5 to 7)"
    check_tracks(tracks, fitted[1][0], ["1", "3"])


def test_large_whole_times_beside_missing_ones(ran, refused, tmp_path):
    argv = ["--time", "t", "--lam", "1", "--drop-missing"]
    path = write(tmp_path / "t.csv", f"t,x\n{2**53},1\n,2\n{2**53 + 2},3\n")
    assert ran("track", path, *argv)["steps"] == f"2 (t from {2**53} to {2**53 + 2})"
    path = write(tmp_path / "t.csv", f"t,x\n{2**53},1\n,2\n{2**53 + 1},3\n")
    assert "column t: whole times of so many digits cannot be kept" in refused("track", path, *argv)
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    path = tmp_path / "t.parquet"
    times = pd.array([2**53, None, 2**53 + 1], dtype="Int64")
    pd.DataFrame({"t": times, "x": [1, 2, 3]}).to_parquet(path)
    assert "column t: whole times of so many digits cannot be kept" in refused("track", path, *argv)


def test_large_whole_times_stay_apart(ran, tmp_path):
    times = np.array([2**60, 2**60 + 1, 2**60 + 2])
    np.save(tmp_path / "t.npy", np.column_stack([times, [1, 2, 3]]))
    report = ran("track", tmp_path / "t.npy", "--time", 1, "--lam", 1)
    assert report["steps"] == f"3 (column 1 from {2**60} to {2**60 + 2})"


@pytest.mark.parametrize(
    ("dates", "first", "last"),
    [
        (["2024-02-01", "2024-01-31", "2024-02-01"], "2024-01-31", "2024-02-01"),
        (
            ["2024-01-31T12:00:00", "2024-01-31", "2024-01-31 12:00"],
            "2024-01-31T00:00:00",
            "2024-01-31T12:00:00",
        ),
        (
            ["2024-01-31T12:00:00.25Z", "2024-01-31T13:00:00.00+02:00", "2024-01-31T12:00:00.25"],
            "2024-01-31T11:00:00.000",
            "2024-01-31T12:00:00.250",
        ),
    ],
)
def test_dates(ran, fitted, tmp_path, dates, first, last):
    lines = [f"{date},{i}\n" for i, date in enumerate(dates)]
    path = write(tmp_path / "t.csv", "when,x\n" + "".join(lines))
    tracks = tmp_path / "tracks.csv"
    report = ran("track", path, "--time", "when", "--lam", "1", "--tracks", tracks)
    assert report["steps"] == f"2 (when from {first} to {last})"
    check_tracks(tracks, fitted[0][0], ["x"])
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    # one by one: pandas 2.2 gives dates without a zone that of others
    for column in (dates, [pd.to_datetime(date, utc=True) for date in dates]):
        pd.DataFrame({"when": column, "x": [0, 1, 2]}).to_parquet(tmp_path / "t.parquet")
        more = ran("track", tmp_path / "t.parquet", "--time", "when", "--lam", "1")
        assert more["steps"] == report["steps"]


@pytest.mark.parametrize(
    ("times", "steps"),
    [
        (
            ["2024-01-31T12:00:00.000000002Z", "2024-01-31T13:00:00.000000001+01:00"],
            "2 (t from 2024-01-31T12:00:00.000000001 to 2024-01-31T12:00:00.000000002)",
        ),
        ([2**53 + 1, 2**53], f"2 (t from {2**53} to {2**53 + 1})"),
        ([2**60, 2**60 + 1], f"2 (t from {2**60} to {2**60 + 1})"),
        ([2**63, 2**63 + 1], f"2 (t from {2**63} to {2**63 + 1})"),
        (["1", "1.0", "2"], "2 (t from 1 to 2)"),
        (["31.01.2024", "01.02.2024"], "2 (t from 2024-01-31 to 2024-02-01)"),
        (["1/2/2024", "1/13/2024 9:30"], "2 (t from 2024-01-02T00:00:00 to 2024-01-13T09:30:00)"),
    ],
)
def test_times_are_those_of_the_estimator(ran, fitted, tmp_path, times, steps):
    """Every form of dates, and different times are different steps whatever their digits."""
    text = "t,x\n" + "".join(f"{time},{i}\n" for i, time in enumerate(times))
    path = write(tmp_path / "t.csv", text)
    assert ran("track", path, "--time", "t", "--lam", 9)["steps"] == steps
    model = smallvar.DynamicMeans(lam=9.0).fit(
        np.arange(len(times))[:, None], times=list(map(str, times))
    )
    assert np.array_equal(fitted[-1][0].times_, model.times_)


def test_times_in_parquet(ran, refused, fitted, tmp_path):
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    path, argv = tmp_path / "t.parquet", ["--time", "t", "--lam", "1"]
    for times in ([2, 1, 2], [2.5, 1.0, 2.5], pd.array([2, 1, 2], dtype="Int64")):
        pd.DataFrame({"t": times, "x": [1.0, 2.0, 3.0], "y": [0, 0, 0]}).to_parquet(path)
        report = ran("track", path, *argv)
        assert np.array_equal(fitted[-1][1], [[1, 0], [2, 0], [3, 0]])
        assert report["steps"] == f"2 (t from 1 to {times[0]})"
    for times in ([2.0, None], pd.array([2, None], dtype="Int64"), ["2024-01-31", None]):
        pd.DataFrame({"t": times, "x": [1, 2]}).to_parquet(path)
        assert "t.parquet, row 2, column t: missing value" in refused("track", path, *argv)
    pd.DataFrame({"t": ["u", "v"], "x": [1, 2]}).to_parquet(path)
    assert "times must be numbers or dates like" in refused("track", path, *argv)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t,x\nnoon,1\n", "line 2, column t: times must be numbers or dates like 2024-01-31T12:00"),
        ("t,x\n1,1\n2024-01-31,1\n", "line 3, column t: times must be numbers like those before"),
        ("t,x\n2024-01-31,1\n7,1\n", "line 3, column t: times must be dates like those before"),
        ("t,x\n2024-01-31,1\n2024-02-31,1\n", "must be dates like those before, got '2024-02-31'"),
        ("t,x\n,1\n", "line 2, column t: missing value"),
        ("t,x\n1,1\nNA,1\n", "line 3, column t: missing value"),
        ("t,x\n2024-01-31,1\n?,1\n", "line 3, column t: missing value"),
        ("t,x\n1,1\nnan,1\n", "line 3, column t: missing value"),
        ("t,x\n1,1\n\ninf,1\n", "line 4, column t: infinite value"),
        ("t,x\n1,red\n", "line 2: column x ('red') not numeric"),
        ("t\n1\n", "t.csv has no other column"),
        ("u,x\n1,1\n", "t.csv has no column 't', but 2 columns: u, x"),
        ("t,t\nu,1\n", "line 2, column t: times must be numbers or dates"),
        ("t,x\n01/02/2024,1\n", "column t: days and months cannot be told apart; write 2024-01-31"),
        ("t,x\n31.01.2024,1\n2024-01-31,1\n", "line 3, column t: times must be dates like those"),
        ("t,x\n2024-01-31T00:00:00.0000000001,1\n", "times must be numbers or dates"),
        ("t,x\n1.00000000000000000001,1\n1,1\n", "column t: times have more digits than can be"),
    ],
)
def test_bad_times(refused, no_fit, tmp_path, text, message):
    assert message in refused("track", write(tmp_path / "t.csv", text), "--time", "t")


def test_times_as_text_in_parquet(ran, refused, fitted, tmp_path):
    """They are read as in a table of text; categories in an order of their own are no times."""
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    path, levels = tmp_path / "t.parquet", ["low", "mid", "high"]
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "t": ["10", "9", "0"]})
    for times in (frame["t"], frame["t"].astype("category")):
        frame.assign(t=times).to_parquet(path)
        report = ran("track", path, "--time", "t", "--lam", 9)
        assert report["steps"] == "3 (t from 0 to 10)"
        assert fitted[-1][0].times_.tolist() == [0, 9, 10]
    frame.assign(t=["10", None, "0"]).to_parquet(path)
    report = ran("track", path, "--time", "t", "--lam", 9, "--drop-missing")
    assert report["steps"] == "2 (t from 0 to 10)"
    frame.assign(t=pd.Categorical(levels, levels, ordered=True)).to_parquet(path)
    assert "column t (category): times must be numbers or dates" in refused(
        "track", path, "--time", "t"
    )


def test_bad_times_in_npy(refused, no_fit, tmp_path):
    np.save(tmp_path / "t.npy", [[1.0, np.nan], [2.0, 3.0]])
    message = refused("track", tmp_path / "t.npy", "--time", 2)
    assert "t.npy, row 1, column 2: missing value" in message
    np.save(tmp_path / "t.npy", np.zeros((3, 1)))
    assert "has no other column" in refused("track", tmp_path / "t.npy", "--time", 1)
    assert "no column 't', but 1 column: 1" in refused("track", tmp_path / "t.npy", "--time", "t")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--lam", "0"], "lam"),
        (["--lam", "inf"], "lam must be finite"),
        (["--lam", "2", "--guess", "3"], "not allowed with"),
        (["--n-clusters", "3"], "unrecognized arguments: --n-clusters 3"),
        (["--guess", "16"], "16: the largest step (t = 100) has only 15 rows"),
        (["--t-q", "3"], "--t-q has no meaning without --k-tau"),
        (["--k-tau", "3"], "--k-tau has no meaning without --t-q"),
        (["--q", "3"], "--q has no meaning without --tau"),
        (["--tau", "3"], "--tau has no meaning without --q"),
        (["--t-q", "3", "--tau", "1"], "--t-q and --tau exclude each other"),
        (["--t-q", "1", "--k-tau", "1"], "argument --t-q: must be a number > 1, got '1'"),
        (["--t-q", "2", "--k-tau", "0.9"], "argument --k-tau: must be a number >= 1, got '0.9'"),
        (["--t-q", "2", "--k-tau", "inf"], "k_tau must be finite"),
        (["--q", "-1", "--tau", "1"], "argument --q: must be a number >= 0, got '-1'"),
        (["--q", "1", "--tau", "nan"], "argument --tau: must be a number >= 0, got 'nan'"),
        (["--starts", "0"], "argument --starts: must be an integer >= 1, got '0'"),
        (["--algorithm", "serial"], "unrecognized arguments: --algorithm serial (see smallvar tr"),
        (["--max-clusters", "3"], "unrecognized arguments: --max-clusters 3"),
    ],
)
def test_bad_arguments_for_tracks(refused, stream, argv, message):
    assert message in refused("track", stream[0], "--time", "t", *argv)


def test_data_without_times(refused, no_fit, stream):
    assert "--time COLUMN is missing" in refused("track", stream[0])


def test_targets_of_tracks_are_tried_before_the_fit(refused, no_fit, stream, tmp_path):
    argv = ["track", stream[0], "--time", "t"]
    assert "there is no folder" in refused(*argv, "--tracks", tmp_path / "x" / "a")
    assert "would overwrite the data" in refused(*argv, "--tracks", stream[0])
    message = refused(*argv, "--out", tmp_path / "z.csv", "--tracks", tmp_path / "z.csv")
    assert "--out and --tracks both name" in message
    assert os.listdir(tmp_path) == [stream[0].name]


def test_without_data_a_stream_is_made_up(run, ran, refused, fitted):
    report = ran("track")
    assert report["clusters"] == "9 ever seen, 8 alive at the end"
    assert report["events"] == "9 births, 1 death, 1 revival"
    assert report["steps"] == "60 (time from 0 to 59)"
    _, out, _ = run("track", "--columns", "y", "--seed", 5)
    assert "generated by this program" in out.splitlines()[0]
    assert "smallvar track FILE --time COLUMN (" in out.splitlines()[1]
    assert "moving groups, 1 column: y" in out
    assert np.array_equal(fitted[1][1], fitted[0][1][:, 1:])
    assert "the stream has no column 'z', but 3 columns: time, x, y" in refused(
        "track", "--columns", "z"
    )


def test_help_for_tracks(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run("track", "--help")
    assert (code, err) == (0, "")
    for option in (
        *("--time", "--lam", "--guess", "--t-q", "--k-tau", "--q", "--tau", "--starts"),
        *("--tracks", "--columns", "--out", "--plot", "--threads", "--seed", "--verbose"),
        *("--version", "--show-config", "--exclude", "--drop-missing", "--decimal", "--scale"),
    ):
        assert f"  {option}" in out
    words = " ".join(out.split())
    assert "default: 0, so that the same command gives the same result" in words
    assert "print a line for every step" in words
    assert out.count("\n  smallvar track ") == 2  # the examples
    assert all(len(line) <= 80 for line in out.splitlines())


def test_warning_of_clusters_that_are_hardly_seen_again(run, stream):
    argv = ["track", stream[0], "--time", "t", "--lam"]
    code, out, err = run(*argv, 1e-4)
    clusters = re.search(r"^clusters +(\d+) ever", out, re.M)[1]
    assert code == 0
    assert err == (
        f"smallvar: warning: {clusters} clusters for {len(stream[1])} rows, so most are seen once "
        "or twice: lam is too small; give a larger --lam or a smaller --guess, or where "
        "clusters move fast a larger --k-tau\n"
    )
    assert run(*argv, 4)[2] == ""


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
    data = _table.Table(X[kept], [f"name {i}" for i in range(d)], "t.npy", times[kept], "t")
    model = smallvar.DynamicMeans(lam=20.0, t_q=10, k_tau=1.5)
    return data, model.fit(data.X, times=data.times)


@pytest.mark.parametrize("dates", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("k", [2, 5, 50, 51, 200])
def test_every_track_is_drawn(k, d, dates):
    pytest.importorskip("matplotlib")
    data, model = walkers(k, d, dates)
    assert len(model.tracks_) == k
    figure = _picture.track_picture(data, model)
    figure.draw_without_rendering()
    axes, *bars = figure.axes
    points, gaps, lines, begins, ends = axes.collections
    assert len(points.get_offsets()) == len(data.X)
    assert (len(gaps.get_segments()), len(lines.get_segments())) == (1, 5 * k - 3)
    drawn = slice(1, None) if d == 1 else slice(0, 2)
    for marks, i in ((begins, 0), (ends, -1)):
        expected = np.array([track[i, 1:3] for track in model.tracks_.values()])
        assert np.array_equal(np.asarray(marks.get_offsets())[:, drawn], expected)
    assert [text.get_text() for text in axes.texts] == [str(i) for i in range(k)] * (k <= 50)
    assert len(bars) == (d > 1 and k > 50)
    assert all(bar.get_ylabel() == "t" for bar in bars)
    titles = ("t", "name 0") if d == 1 else ("name 0", "name 1")
    assert (axes.get_xlabel(), axes.get_ylabel()) == titles
    some = ", the first 2 of 3 columns" if d == 3 else ""
    assert axes.get_title() == (
        f"t.npy: n = {len(data.X):,}{some}, 6 time steps\n{k} clusters, lam = 20; each from a ring "
        f"to {'its number' if k <= 50 else 'a dot'}, dotted while unseen"
    )


def test_of_many_points_of_tracks_some_are_drawn(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(_base, "MAX_POINTS", 7)
    data, model = walkers(5, 2)
    figure = _picture.track_picture(data, model)
    assert len(figure.axes[0].collections[0].get_offsets()) == 7
    assert "n = 28, 7 of them drawn, 6 time steps" in figure.axes[0].get_title()


@pytest.mark.parametrize("suffix", ["png", "PDF", "svg"])
@pytest.mark.parametrize("columns", ["x", "x,y"])
def test_pictures_of_tracks_are_written(ran, stream, tmp_path, suffix, columns):
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"picture.{suffix}"
    argv = ["--time", "t", "--columns", columns, "--lam", 4, "--plot", picture]
    assert ran("track", stream[0], *argv)["picture"] == str(picture)
    start = {"png": b"\x89PNG\r\n", "PDF": b"%PDF-", "svg": b"<?xml"}[suffix]
    assert picture.read_bytes().startswith(start)
    assert picture.stat().st_size > 5000


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("n", [1, 60])
def test_tracks_of_one_step(ran, tmp_path, n, d):
    pytest.importorskip("matplotlib")
    path = tmp_path / "$a_{$.npy"
    np.save(path, np.column_stack([np.ones(n), *[10.0 * np.arange(n)] * d]))
    report = ran("track", path, "--time", 1, "--lam", 1, "--plot", tmp_path / "picture.png")
    assert report["clusters"] == f"{n} ever seen, {n} alive at the end"


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
for command in ("features", "track"):
    assert main([command, "--help"]) == main([command, "--bad"]) - 2 == 0
assert not new() & heavy, new()
assert main(sys.argv[1:]) == main(["features", *sys.argv[1:]]) == 0
assert main(["track", *sys.argv[1:], "--time", "x"]) == 0
assert not new() & {"matplotlib"}, new()
"""
    done = python("-c", program, blobs[0])
    assert done.returncode == 0, done.stderr


@pytest.mark.long
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
    assert done.returncode == 141


@POSIX
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "argv", [["--lam", "60"], ["--out", "-"], ["--verbose"], ["--show-config"], ["--help"]]
)
def test_output_that_cannot_be_written(blobs, argv, unbuffered):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "smallvar", blobs[0], *argv],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=120,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 1
    message = "smallvar: cannot write standard output: No space left on device"
    assert done.stderr.decode() == f"{message}\n"


@POSIX
def test_output_that_is_closed(blobs):
    command = '"$0" -m smallvar "$1" --lam 60 $2 >&-'
    for option, code, words in (("", 0, ""), ("--out=-", 2, "--out -: standard output is closed")):
        done = subprocess.run(
            ["/bin/sh", "-c", command, sys.executable, blobs[0], option],
            stderr=subprocess.PIPE,
            timeout=120,
        )
        assert done.returncode == code
        assert done.stderr.decode() == (f"smallvar: {words}\n" if words else "")


@pytest.mark.parametrize("command", [["cluster"], ["features"], ["track", "--time", "x"]])
def test_ctrl_c(run, blobs, tmp_path, monkeypatch, command):
    def fit(self, X, **options):
        raise KeyboardInterrupt

    for estimator in ESTIMATORS:
        monkeypatch.setattr(estimator, "fit", fit)
    done = run(*command, blobs[0], "--out", tmp_path / "labels.csv")
    assert done == (130, "", "smallvar: interrupted\n")
    assert not (tmp_path / "labels.csv").exists()


@pytest.mark.long
@POSIX
@pytest.mark.parametrize("command", [["--lam", "1"], ["features", "--lam", "1000"]])
def test_ctrl_c_stops_a_process(tmp_path, command):
    np.save(tmp_path / "t.npy", np.random.default_rng(0).random((100_000, 16), dtype="f4"))
    # A process started in the background may have been told to ignore the signal.
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from smallvar.__main__ import main; sys.exit(main())"
    )
    argv = [*command, tmp_path / "t.npy", "--verbose", "--out", tmp_path / "labels.csv"]
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


# Progress


def on_a_terminal(program, *argv):
    """Run a program whose standard error is a terminal; returns both outputs."""
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, argv)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
    )
    os.close(slave)
    err = b""
    try:
        while True:
            try:
                some = os.read(master, 4096)
            except OSError:  # the other end is closed
                break
            if not some:
                break
            err += some
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        os.close(master)
    assert process.returncode == 0, err
    return out.decode(), err.decode()


IMPATIENT = """
import sys, time, warnings
import smallvar
from smallvar._cli import main, progress
progress.PATIENCE, progress.TICK = 0.05, 0.02
"""


@pytest.mark.long
@POSIX
def test_progress_of_a_fit(blobs):
    program = """
class Slow(smallvar.DPMeans):
    def fit(self, X):
        def wait(event):
            time.sleep(0.4)
            warnings.warn("strange")
        with smallvar.progress_callback(wait):
            return super().fit(X)
smallvar.DPMeans = Slow
sys.exit(main.main(sys.argv[1:]))
"""
    out, err = on_a_terminal(IMPATIENT + program, blobs[0], "--lam", "60")
    states = err.split("\r")
    assert any(state.startswith("fitting: 0 s, sweep 1: 3 clusters, ") for state in states)
    assert "smallvar: warning: strange" in states  # not behind the line, but in place of it
    assert "sweep 1:" not in out
    assert re.search(r"^K +3$", out, re.M)
    out, err = on_a_terminal(IMPATIENT + program, blobs[0], "--lam", "60", "--verbose")
    assert "sweep 1: 3 clusters, " in out
    assert "sweep" not in err


@pytest.mark.long
@POSIX
def test_progress_of_a_search(blobs):
    program = """
class Slow(smallvar.DPMeans):
    def fit(self, X):
        with smallvar.progress_callback(lambda event: time.sleep(1)):
            return super().fit(X)
smallvar.DPMeans = Slow
sys.exit(main.main(sys.argv[1:]))
"""
    out, err = on_a_terminal(IMPATIENT + program, blobs[0])
    states = [state.rstrip() for state in err.split("\r")]
    for words in (
        "about 4 clusters by 60 rows, looking closer",
        "3 clusters by 60 rows",
        "sweep 1: 3 clusters, .*",
    ):
        assert any(re.fullmatch(rf"fitting: \d+ s, {words}", state) for state in states)
    assert "path" not in out
    assert "sweep 1:" not in out
    assert re.search(r"^K +3 \(from the data[;)]", out, re.M)


def test_steps_of_a_search_in_words(blobs):
    progress, shown = SimpleNamespace(), []

    def follow(event):
        _choice.note(progress, event)
        shown.append(progress.note)

    with smallvar.progress_callback(follow):
        smallvar.DPMeans(random_state=0).fit(blobs[1])
    assert shown[:2] == ["about 4 clusters by 60 rows, looking closer", "3 clusters by 60 rows"]
    assert shown[-1].startswith("sweep ")


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
    event = SimpleNamespace(stage=stage, n_clusters=k, n_samples=n, message="what is printed")
    _choice.note(progress, event)
    assert progress.note == words


@pytest.mark.long
@POSIX
def test_time_left_of_tracks(stream):
    program = """
class Slow(smallvar.DynamicMeans):
    def _step(self, *args):
        time.sleep(0.03)
        return super()._step(*args)
smallvar.DynamicMeans = Slow
sys.exit(main.main(sys.argv[1:]))
"""
    argv = ["track", stream[0], "--time", "t", "--lam", "4"]
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
def test_time_left_of_reading(tmp_path, suffix):
    lines = "".join(f"{i},{i * i}\n" for i in range(200_000)).encode()
    path = tmp_path / f"t{suffix}"
    path.write_bytes(gzip.compress(lines) if suffix == ".csv.gz" else lines)
    program = """
from smallvar._cli import table
class Slow(progress.Progress):  # gives the thread that draws its turn, however busy the machine is
    share = None
    def get(self):
        return self.share
    def put(self, share):
        time.sleep(0.002)
        self.share = share
    done = property(get, put)
table.Progress = Slow
sys.exit(main.main(sys.argv[1:]))
"""
    _, err = on_a_terminal(IMPATIENT + program, path, "--lam", "1e30")
    shares = [int(share) for share in re.findall(r"reading: (\d+)% after \d+ s, about", err)]
    assert len(shares) > 1
    assert shares == sorted(shares)
    assert 0 < shares[0] < 100 and shares[-1] <= 100


@pytest.mark.long
@POSIX
def test_no_progress_of_short_work(blobs):
    program = "import sys; from smallvar._cli.main import main; sys.exit(main(sys.argv[1:]))"
    out, err = on_a_terminal(program, blobs[0], "--lam", "60")
    assert "objective" in out
    assert err == ""


def test_no_progress_without_a_terminal(run, blobs, monkeypatch):
    monkeypatch.setattr(_progress, "PATIENCE", 0.0)
    monkeypatch.setattr(_progress, "TICK", 0.001)
    assert run(blobs[0], "--lam", 60)[2] == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_spans_of_time(seconds, words):
    assert _progress.span(seconds) == words


def test_time_left():
    progress = _progress.Progress("reading")
    assert progress.words(7) == "reading: 7 s"
    progress.done = 0.25
    assert progress.words(30) == "reading: 25% after 30 s, about 1 min 30 s left"


# A real file


def test_vehicle_silhouettes(ran, refused, tmp_path):
    path = Path(os.environ.get("SMALLVAR_DATA", ""), "uci", "vehicle.csv")
    if not path.is_file():
        pytest.skip("SMALLVAR_DATA is not a folder with uci/vehicle.csv (UCI: Statlog Vehicle)")
    argv = [path, "--columns", "Comp:Holl.Ra", "--guess", 4, "--out", tmp_path / "l.csv"]
    report = ran(*argv, warning="column Sc.Var.maxis")
    names = np.loadtxt(path, delimiter=",", max_rows=1, dtype=str)
    X = np.loadtxt(path, delimiter=",", skiprows=1)[:, :-1]
    model = smallvar.DPMeans(lam="farthest-first", guess=4).fit(X)
    assert names[-1] == "class"
    assert (report["n"], report["d"]) == ("846", "18")
    assert float(report["objective"].split()[0]) == pytest.approx(model.objective_, rel=1e-9)
    assert np.array_equal(np.loadtxt(tmp_path / "l.csv", skiprows=1), model.labels_)
    assert "has no column 'none'" in refused(path, "--columns", "none")


def test_wine(run, ran, tmp_path):
    path = Path(os.environ.get("SMALLVAR_DATA", ""), "uci", "wine.csv")
    if not path.is_file():
        pytest.skip("SMALLVAR_DATA is not a folder with uci/wine.csv (UCI: Wine)")
    _, _, err = run(path, "--exclude", "class")
    assert "column proline (" in err
    assert "as wide as column nonflavanoid_phenols (" in err
    report = ran(path, "--exclude", "class", "--scale", "--out", tmp_path / "labels.csv")
    assert report["d"] == "13"
    assert re.match(r"3 \(from the data[;)]", report["K"])
    classes = np.genfromtxt(path, delimiter=",", names=True)["class"]
    labels = np.loadtxt(tmp_path / "labels.csv", skiprows=1)
    assert adjusted_rand_score(classes, labels) > 0.85


def test_penalty_of_aircraft(ran):
    path = Path(os.environ.get("SMALLVAR_DATA", ""), "adsb_quickstart_20s.csv")
    if not path.is_file():
        pytest.skip("SMALLVAR_DATA is not a folder with adsb_quickstart_20s.csv (traffic: ADS-B)")
    report = ran("track", path, "--time", "seconds", "--columns", "longitude,latitude")
    assert report["n"] == "14457"
    assert int(report["clusters"].split()[0]) < 200  # more than ten thousand from the first step


def test_aircraft(ran, tmp_path):
    path = Path(os.environ.get("SMALLVAR_DATA", ""), "adsb_quickstart_20s.csv")
    if not path.is_file():
        pytest.skip("SMALLVAR_DATA is not a folder with adsb_quickstart_20s.csv (traffic: ADS-B)")
    argv = ["--time", "seconds", "--columns", "longitude,latitude", "--lam", 0.05]
    report = ran("track", path, *argv, "--tracks", tmp_path / "t.csv")
    table = np.loadtxt(path, delimiter=",", skiprows=1, usecols=[1, 2, 3])
    model = smallvar.DynamicMeans(lam=0.05, random_state=0).fit(table[:, [2, 1]], times=table[:, 0])
    assert report["steps"] == "540 (seconds from 0 to 10780)"
    assert float(report["objective"].split()[0]) == pytest.approx(
        model.step_objectives_.sum(), rel=1e-9
    )
    check_tracks(tmp_path / "t.csv", model, ["longitude", "latitude"])


def test_simulated_pictures(ran, tmp_path):
    path = Path(os.environ.get("SMALLVAR_DATA", ""), "bp_means_simulated.csv")
    if not path.is_file():
        pytest.skip("SMALLVAR_DATA is not a folder with bp_means_simulated.csv (100 x 14 x 14)")
    report = ran("features", path, "--lam", 40 * 255**2, "--components", tmp_path / "a.csv")
    assert (report["n"], report["d"], report["K"]) == ("100", "196", "4")
    A = np.loadtxt(tmp_path / "a.csv", delimiter=",", skiprows=1)
    assert sorted((A > 250).sum(axis=1)) == [9, 9, 9, 9]
    assert (np.minimum(abs(A), abs(A - 255)) < 1e-9).all()


# ---------------------------------------------------------------------------------------
# By batches


def save_table(path, X):
    """A .npy file, or a .parquet file in groups of rows."""
    if path.suffix == ".npy":
        np.save(path, X)
        return path
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    columns = {f"c{i}": X[:, i] for i in range(X.shape[1])}
    parquet.write_table(pyarrow.table(columns), path, row_group_size=700)
    return path


def read_labels(path):
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".csv":
        return np.loadtxt(path, dtype=int, skiprows=1)
    return pytest.importorskip("pandas").read_parquet(path)["label"].to_numpy()


@pytest.fixture
def sorted_blobs():
    """Five far clusters of 600, 610, ... points, one after another."""
    sizes = 600 + 10 * np.arange(5)
    X = 0.1 * np.random.default_rng(0).normal(size=(sizes.sum(), 3))
    X += np.repeat(np.random.default_rng(1).random((5, 3)) * 20, sizes, axis=0)
    return X, np.repeat(np.arange(5), sizes)


@pytest.mark.parametrize("out", [".npy", ".csv", ".parquet"])
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_batches(ran, sorted_blobs, tmp_path, suffix, out, dtype):
    X, groups = sorted_blobs
    X = X.astype(dtype)
    path, target = save_table(tmp_path / f"t{suffix}", X), tmp_path / f"labels{out}"
    if out == ".parquet":
        pytest.importorskip("pyarrow")
    report = ran(path, "--batch-size", 1000, "--out", target)
    assert report["n"] == str(len(X))
    assert report["d"] == "3"
    assert report["batches"] == "4 of up to 1,000 rows"
    assert report["K"] == "5"
    labels = read_labels(target)
    sizes = ", ".join(map(str, np.bincount(labels)))
    assert report["sizes"] == f"{sizes} (labels 0 to 4)"
    assert len(set(zip(labels, groups, strict=True))) == 5
    error = sum(np.square(X[groups == k] - X[groups == k].mean(axis=0)).sum() for k in range(5))
    assert float(report["SSE"].split()[0]) == pytest.approx(error, rel=1e-3)
    again = ran(path, "--batch-size", 1000, "--out", tmp_path / "again.npy")
    assert {**again, "seconds": 0, "labels": 0} == {**report, "seconds": 0, "labels": 0}
    assert np.array_equal(np.load(tmp_path / "again.npy"), labels)


@pytest.mark.parametrize("dtype", ["f2", ">f8", "i2", "u8", "?"])
def test_batches_of_other_types(ran, tmp_path, dtype):
    X = (np.random.default_rng(0).integers(0, 5, size=(900, 3)) * 40).astype(dtype)
    facts = []
    for kind in (dtype, "f8"):
        np.save(tmp_path / "t.npy", X.astype(kind))
        report = ran(tmp_path / "t.npy", "--batch-size", 200, "--lam", 100)
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


def test_batches_of_columns(ran, run, sorted_blobs, tmp_path):
    X, groups = sorted_blobs
    wide = np.column_stack([1e6 * np.arange(len(X)), X])
    for suffix, column in ((".npy", "1"), (".parquet", "c0")):
        path = save_table(tmp_path / f"t{suffix}", wide)
        report = ran(
            path, "--exclude", column, "--batch-size", 500, "--lam", 4, "--max-clusters", 9
        )
        assert (report["K"], report["d"]) == ("5", "3")
        assert report["lam"].startswith("4 (")
        report = ran(path, "--exclude", column, "--batch-size", 500, "--guess", 5)
        assert report["d"] == "3"
        report = ran(path, "--exclude", column, "--batch-size", 500, "--n-clusters", 7)
        assert report["K"] == "7"
    code, out, err = run(path, "--exclude", "c0", "--batch-size", 500, "--out", "-", "--verbose")
    assert code == 0
    labels = np.array(out.split()[1:], dtype=int)
    assert len(set(zip(labels, groups, strict=True))) == 5
    assert "row 3100: 5 clusters" in err


def test_batches_of_pandas(ran, sorted_blobs, tmp_path):
    """An index is no column; whole numbers and truth values are numbers."""
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    X = np.round(sorted_blobs[0]).astype(int)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1] > 5, "c": X[:, 2].astype("f4")})
    frame.index = pd.Index(np.arange(len(X)) * 100, name="row")
    frame.iloc[::-1].to_parquet(tmp_path / "t.parquet")
    report = ran(tmp_path / "t.parquet", "--batch-size", 1000, "--lam", 9)
    assert report["data"] == "t.parquet, 3 columns: a, b, c"


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_batches_refused(refused, no_fit, sorted_blobs, tmp_path, monkeypatch, suffix):
    X = sorted_blobs[0].copy()
    path, by = tmp_path / f"t{suffix}", ("--batch-size", 1000)
    save_table(path, X)
    for *option, words in (
        ("--path", "--path"),
        ("--algorithm", "merge", "--algorithm"),
        ("--plot", "x.png", "--plot"),
        ("--scale", "--scale"),
        ("--drop-missing", "--drop-missing"),
    ):
        message = refused(path, *by, *option)
        assert f"--batch-size: {words} needs the whole table at once" in message
    assert "must be an integer >= 1, got '0'" in refused(path, "--batch-size", 0)
    assert "--decimal , has no meaning with" in refused(path, *by, "--decimal", ",")
    assert "would overwrite the data" in refused(path, *by, "--out", path)
    for value, what in ((np.nan, "missing"), (np.inf, "infinite")):
        X[2500, 1] = value
        save_table(path, X)
        title = "2" if suffix == ".npy" else "c1"
        assert f"row 2501, column {title}: {what} value" in refused(path, *by)
    save_table(path, X[:0])
    assert "has no values: 0 rows" in refused(path, *by)
    path.write_bytes(b"nonsense")
    assert f"t{suffix}" in refused(path, *by)
    text = write(tmp_path / "t.csv", "1,2\n")
    assert "the name of DATA must end in .npy or .parquet" in refused(text, *by)
    assert "the name of DATA must end in" in refused(*by)
    assert "No such file" in refused(tmp_path / f"none{suffix}", *by)
    if suffix == ".parquet":
        pd = pytest.importorskip("pandas")
        pd.DataFrame({"a": ["x"], "b": [1]}).to_parquet(path)
        assert "column a (" in refused(path, *by) and "not numeric" in refused(path, *by)
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        assert "needs pyarrow: pip install 'smallvar[parquet]'" in refused(path, *by)


@pytest.mark.long
@POSIX
def test_progress_of_batches(sorted_blobs, tmp_path):
    path = save_table(tmp_path / "t.npy", sorted_blobs[0])
    program = """
from smallvar._cli import batches
read = batches.NpyBatches.read
def slow(self):
    for X in read(self):
        time.sleep(0.05)
        yield X
batches.NpyBatches.read = slow
sys.exit(main.main(sys.argv[1:]))
"""
    _, err = on_a_terminal(IMPATIENT + program, path, "--batch-size", "200")
    for work in ("looking", "fitting", "labeling"):
        pattern = rf"{work}: \d+% after \d+ s, about \d+ s left, [\d,]+ rows, [\d,]+ a second"
        assert re.search(pattern, err)


@pytest.mark.long
def test_memory_of_batches(tmp_path):
    """Neither the table nor its labels are ever held."""
    tracemalloc = pytest.importorskip("tracemalloc")
    rng = np.random.default_rng(0)
    X = np.repeat(rng.random((4, 8)) * 50, 50_000, axis=0)
    path = save_table(tmp_path / "t.npy", X)
    argv = [str(path), "--batch-size", "2000", "--lam", "9", "--out", str(tmp_path / "l.csv")]
    assert main(argv) == 0  # imports
    tracemalloc.start()
    try:
        assert main(argv) == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.6 * X.nbytes
