"""The command line on folders of .parquet files: ``smallvar cluster --dask``."""

import sys

import numpy as np
import pytest

import smallvar
from smallvar._cli import partitions

pytest.importorskip("distributed")
pytest.importorskip("dask.dataframe")
import dask
import pandas as pd
from dask_helpers import threads_as_workers
from distributed import Client
from sklearn.datasets import make_moons

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def rows():
    """Seven clusters that touch, in random order."""
    rng = np.random.default_rng(0)
    return 6.0 * rng.random((7, 3))[rng.integers(7, size=5000)] + rng.normal(size=(5000, 3))


def save(folder, X, parts=12):
    """A folder of twelve files, among which part.10 comes after part.2."""
    folder.mkdir(exist_ok=True)
    for p, some in enumerate(np.array_split(X, parts)):
        frame = pd.DataFrame(some, columns=[f"c{j}" for j in range(X.shape[1])])
        frame.to_parquet(folder / f"part.{p}.parquet")
    return folder


def read_labels(path):
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".csv":
        return np.loadtxt(path, dtype=int, skiprows=1)
    return pd.read_parquet(path)["cluster"].to_numpy()


@pytest.mark.long
@pytest.mark.parametrize("out", [".npy", ".csv", ".parquet"])
@pytest.mark.parametrize("algorithm", ["serial", "delayed"])
def test_labels_of_one_machine(ran, rows, tmp_path, algorithm, out):
    folder, target = save(tmp_path / "rows", rows), tmp_path / f"labels{out}"
    report = ran(folder, "--dask", "--lam", 25, "--algorithm", algorithm, "--out", target)
    details = ran(folder, "--dask", "--lam", 25, "--algorithm", algorithm, "--verbose")
    model = smallvar.DPMeans(lam=25.0, algorithm=algorithm).fit(rows)
    assert np.array_equal(read_labels(target), model.labels_)
    sizes = ", ".join(map(str, np.bincount(model.labels_)))
    threads = report.pop("partitions").removeprefix("12, on ")
    assert threads.endswith(" of this process")
    assert details["seconds"].endswith(" labeling")
    report.pop(str(model.n_clusters_))  # the sentence at the beginning
    assert report == {
        "data": "rows, 3 columns: c0, c1, c2",
        "n": "5000",
        "d": "3",
        "K": str(model.n_clusters_),
        "sizes": f"{sizes} (labels 0 to {model.n_clusters_ - 1})",
        "labels": str(target),
    }
    expected = {
        "lam": "25 (given)",
        "sweeps": str(model.n_iter_),
        "objective": f"{model.objective_:.10g} (SSE + lam K)",
        "SSE": f"{model.inertia_:.10g}",
    }
    assert {name: details[name] for name in expected} == expected


@pytest.mark.long
def test_options(ran, run, rows, tmp_path):
    """Columns, a bound, K by the data, and the threads and the lines of the fit."""
    folder = save(tmp_path / "rows", np.column_stack([1e6 * np.arange(len(rows)), rows]))
    argv = [folder, "--dask", "--exclude", "c0"]
    bound = ["--max-clusters", 4, "--lam", 9]
    report = ran(*argv, *bound, "--threads", 1, "--verbose")
    model = smallvar.DPMeans(lam=9.0, max_clusters=4).fit(rows)
    assert (report["d"], report["K"]) == ("3", "4")
    assert report["SSE"] == f"{model.inertia_:.10g}"
    assert report["partitions"] == "12, on 1 thread of this process"
    code, out, err = run(*argv, *bound, "--out", "-", "--verbose")
    assert code == 0
    assert np.array_equal(np.array(out.split()[1:], dtype=int), model.labels_)
    assert "sweep 1: 4 clusters" in err

    assert ran(*argv, "--n-clusters", 3)["K"] == "3"
    report = ran(*argv, "--seed", 3, "--verbose")
    model = smallvar.DPMeans(random_state=3).fit(rows)
    assert float(report["lam"].split()[0]) == pytest.approx(model.lam_, rel=1e-7)
    assert report["K"].startswith(f"{model.n_clusters_}")


@pytest.mark.parametrize("options", [[], ["--n-clusters", 3, "--seed", 4]])
def test_clusters_of_any_shape(ran, tmp_path, options):
    X = make_moons(1500, noise=0.08, random_state=0)[0]
    folder, target = save(tmp_path / "rows", X, 3), tmp_path / "labels.npy"
    report = ran(folder, "--dask", "--shapes", "--out", target, *options)
    seed, number = (4, 3) if options else (0, None)
    model = smallvar.ShapeMeans(n_clusters=number, random_state=seed).fit(X)
    assert np.array_equal(np.load(target), model.labels_)
    assert report["K"] == str(model.n_clusters_)
    assert report["pieces"].startswith(f"{len(model.piece_clusters_)}, ")
    assert report["boundaries"].startswith(f"{len(model.boundaries_)} between pieces: ")
    assert report["sizes"].startswith(", ".join(map(str, np.bincount(model.labels_))))
    assert "lam" not in report


def test_a_scheduler_that_runs(ran, refused, rows, tmp_path):
    """The workers that DASK_SCHEDULER_ADDRESS names, as Dask reads it."""
    folder = save(tmp_path / "rows", rows)
    with threads_as_workers(set_as_default=False) as client:
        address = client.scheduler.address
        with dask.config.set({"scheduler-address": address}):
            report = ran(folder, "--dask", "--lam", 25)
            assert report["partitions"] == f"12, on 2 workers, 2 threads, of {address}"
            assert "--threads is for the workers of" in refused(folder, "--dask", "--threads", 2)
    with dask.config.set(
        {"scheduler-address": "tcp://127.0.0.1:1", "distributed.comm.timeouts.connect": "0.2s"}
    ):
        assert "no scheduler at tcp://127.0.0.1:1" in refused(folder, "--dask", "--lam", 25)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("rows --path", "--path needs the whole table"),
        ("rows --guess 3", "--guess needs the whole table"),
        ("rows --min-cluster-size 9", "--min-cluster-size needs the whole table"),
        ("rows --plot x.png", "--plot needs the whole table"),
        ("rows --profiles", "--profiles needs the whole table"),
        ("rows --scale", "--scale needs the whole table"),
        ("rows --drop-missing", "--drop-missing needs the whole table"),
        ("rows --batch-size 10", "--batch-size is for a file; give one of the two"),
        ("rows --algorithm merge", "--algorithm must be serial or delayed, got merge"),
        ("rows --algorithm collapsed", "--algorithm must be serial or delayed, got collapsed"),
        ("rows --lam 3 --seed 1", "--seed has no meaning with --lam"),
        ("rows --decimal ,", "--decimal , has no meaning with --dask"),
        ("rows --out rows/labels.csv", "this would lie among the data"),
        ("rows --out labels.txt", "the name must end in .csv, .tsv, .npy or .parquet"),
        ("rows --columns c7", "has no column 'c7'"),
        ("", "DATA must be a folder of .parquet files"),
        ("rows/part.0.parquet", "is not a folder of .parquet files"),
        ("none", "No such file"),
        ("empty", "empty holds no .parquet file"),
    ],
)
def test_refused(refused, rows, tmp_path, monkeypatch, call, words):
    monkeypatch.chdir(tmp_path)
    folder = save(tmp_path / "rows", rows[:50], 2)
    (tmp_path / "empty").mkdir()
    assert words in refused(call, "--dask")
    assert not (folder / "labels.csv").exists()


def test_bad_rows_refused(refused, rows, tmp_path, monkeypatch):
    """What is wrong with the rows is said with the number of the partition."""
    rows[2900, 1] = np.nan
    folder = save(tmp_path / "rows", rows)
    message = refused(folder, "--dask", "--lam", 9)
    assert "partition 6: X must be complete, got a missing value" in message
    assert "'c1'" in message
    words = save(tmp_path / "words", rows[:9], 1)
    pd.DataFrame({"a": ["x"], "b": [1]}).to_parquet(words / "part.0.parquet")
    assert "column a (" in refused(words, "--dask")
    (words / "part.0.parquet").write_bytes(b"nonsense")
    assert "words: " in refused(words, "--dask")
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "needs dask and pyarrow: pip install 'smallvar[dask]'" in refused(folder, "--dask")


def test_what_workers_cannot_do(refused, rows, tmp_path, monkeypatch):
    """Dead workers end in one line, and nothing is written."""
    from smallvar.dask import DPMeans

    def fit(self, X):
        raise RuntimeError("workers died again and again")

    monkeypatch.setattr(DPMeans, "fit", fit)
    folder, target = save(tmp_path / "rows", rows), tmp_path / "labels.npy"
    argv = (folder, "--dask", "--lam", 9, "--out", target)
    assert refused(*argv) == "smallvar: workers died again and again\n"
    assert not target.exists()


@pytest.mark.long
def test_labels_are_written_by_partition(ran, rows, tmp_path, monkeypatch):
    """No more labels are here at once than of a few partitions."""
    folder = save(tmp_path / "rows", rows, 40)
    lengths, gather = [], Client.gather

    def watched(self, futures, *args, **options):
        found = gather(self, futures, *args, **options)
        if isinstance(found, list) and all(
            getattr(one, "dtype", None) == np.int32 for one in found
        ):
            lengths.append(sum(map(len, found)))
        return found

    monkeypatch.setattr(partitions, "PARTITIONS_PER_THREAD", 3)
    monkeypatch.setattr(Client, "gather", watched)
    ran(folder, "--dask", "--lam", 25, "--threads", 1, "--out", tmp_path / "labels.npy")
    assert sum(lengths) == len(rows)
    assert max(lengths) == 3 * len(rows) // 40
