"""``smallvar cluster --dask``: clusters a folder of .parquet files on the workers of Dask.

``opened`` finds the workers and the columns, ``fit`` fits an estimator of ``smallvar.dask``, and
``label`` writes the labels, a few partitions at a time.
"""

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from smallvar._cli.arguments import refuse_given, refuse_text_options
from smallvar._cli.columns import in_types, not_numeric, pick_columns
from smallvar._cli.errors import UserError
from smallvar._cli.output import labels_by_batches
from smallvar._cli.progress import ProgressLine
from smallvar._cli.table import Wanted
from smallvar._cli.words import counted

# options that need all rows at once
NOT_BY_PARTITIONS = (
    *(
        "id",
        "keep",
        "path",
        "guess",
        "min_cluster_size",
        "plot",
        "profiles",
        "scale",
        "drop_missing",
    ),
)
DASK_ALGORITHMS = ("serial", "delayed")
PARTITIONS_PER_THREAD = 2  # partitions per thread whose labels are computed at the same time
# the status pages of Dask in this process: at any free port, reachable from this machine only
PAGES = dict.fromkeys(("dashboard_address", "worker_dashboard_address"), "127.0.0.1:0")


class Folder(NamedTuple):
    """A Dask collection of rows, its name and columns, and the client of its workers."""

    X: Any
    titles: list[str]
    name: str
    client: Any
    workers: str  # a description


def check_options(args):
    """Raise a UserError for options that cannot be followed a partition at a time."""
    refuse_given(args, NOT_BY_PARTITIONS, "--dask: {} needs the whole table at once")
    if args.batch_size is not None:
        raise UserError("--dask: --batch-size is for a file; give one of the two")
    if args.algorithm not in (None, *DASK_ALGORITHMS):
        raise UserError(f"--dask: --algorithm must be serial or delayed, got {args.algorithm}")
    if args.seed is not None and args.lam not in (None, "auto"):
        raise UserError("--dask: --seed has no meaning with --lam, rows are visited as given")
    refuse_text_options(args, "has no meaning with --dask")
    if args.data in (None, "-"):
        raise UserError("--dask: DATA must be a folder of .parquet files")
    folder = Path(args.data)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--dask: {args.data} is not a folder of .parquet files")
    if args.out not in (None, "-") and folder.resolve() in Path(args.out).resolve().parents:
        raise UserError(f"--out {args.out}: this would lie among the data")


@contextmanager
def opened(args):
    """Context of the Folder, on the configured scheduler or on threads of this process."""
    try:
        import dask
        import dask.dataframe as dd
        from distributed import Client
    except ImportError as error:
        raise UserError("--dask needs dask and pyarrow: pip install 'smallvar[dask]'") from error
    try:
        os.listdir(args.data)
        if not any(Path(args.data).rglob("*.parquet")):
            raise UserError(f"{args.data} holds no .parquet file")
        X = dd.read_parquet(args.data)
    except OSError as error:
        raise UserError(f"cannot read {args.data}: {error.strerror or error}") from error
    except ValueError as error:  # such as pyarrow's error for a damaged file
        raise UserError(f"{args.data}: {error}") from error
    X, titles = pick_numbers(args, X)
    # a scheduler is configured by DASK_SCHEDULER_ADDRESS or a file; otherwise one is started here
    address = dask.config.get("scheduler-address", None)
    if address is None:
        start = {"processes": False, "n_workers": 1, "threads_per_worker": args.threads, **PAGES}
    elif args.threads is None:
        start = {"address": address}
    else:
        raise UserError(f"--dask: --threads is for the workers of {address} to say")
    name = os.path.basename(os.path.realpath(args.data)).encode(errors="backslashreplace").decode()
    try:
        client = Client(**start)
    except (OSError, ValueError) as error:
        raise UserError(f"--dask: no scheduler at {address}: {error}") from error
    with client:
        threads = sum(client.nthreads().values())
        if address is None:
            workers = f"{counted(threads, 'thread')} of this process"
        else:
            count = counted(len(client.nthreads()), "worker")
            workers = f"{count}, {counted(threads, 'thread')}, of {address}"
        yield Folder(X, titles, name, client, workers)


def pick_numbers(args, X):
    """The collection with the columns to use, which must be numeric, and their titles."""
    from pandas.api.types import is_numeric_dtype

    names = [str(name) for name in X.columns]
    columns = pick_columns(args.data, Wanted.of(args), names, len(names))
    X = X[[X.columns[j] for j in columns.positions]]
    refused = in_types(columns.titles, X.dtypes, is_numeric_dtype)
    if refused:
        raise UserError(f"{args.data}{not_numeric(*refused)}")
    return X, columns.titles


def fit(folder, model):
    """Fit the model to the rows of the folder; errors of workers become UserErrors."""
    try:
        return model.fit(folder.X)
    except RuntimeError as error:
        raise UserError(str(error)) from error


def label(args, folder, model):
    """Write all labels, a few partitions at a time; return the sizes of the clusters."""
    partitions = model.labels_.to_delayed()
    at_once = PARTITIONS_PER_THREAD * sum(folder.client.nthreads().values())
    sizes = np.zeros(model.n_clusters_, dtype=np.int64)
    with labels_by_batches(args, len(model.labels_)) as write, ProgressLine("labeling") as progress:
        for start in range(0, len(partitions), at_once):
            futures = folder.client.compute(partitions[start : start + at_once].tolist())
            for labels in folder.client.gather(futures):
                write(labels)
                sizes += np.bincount(labels, minlength=len(sizes))
            progress.done = min(1.0, (start + at_once) / len(partitions))
    return sizes
