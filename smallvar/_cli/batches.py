"""``smallvar cluster --batch-size``: clusters a file that is read in batches, never as a whole.

``cluster_by_batches`` makes three passes: check the file and draw a sample; fit MiniBatchDPMeans
batch by batch, starting from the clusters of the sample; write the labels.
"""

from time import perf_counter

import numpy as np

from smallvar._cli.answer import Answer, steps_by_files
from smallvar._cli.arguments import penalty_of, refuse_given, refuse_text_options
from smallvar._cli.choice import by_penalty_in_words, given_in_words
from smallvar._cli.columns import (
    columns_in_short,
    in_types,
    not_numeric,
    pick_columns,
    refuse_twins,
)
from smallvar._cli.errors import UserError
from smallvar._cli.output import complain, labels_by_batches, sizes_in_words, timed, warnings_told
from smallvar._cli.progress import ProgressLine
from smallvar._cli.table import (
    BY_BATCHES,
    Wanted,
    find_gaps,
    in_words,
    named_file,
    one_of,
    open_npy,
    suffix_of,
    without_option,
)
from smallvar._cli.words import counted, option_of_names
from smallvar._core.identifiers import identifies

BATCH_SAMPLE_ROWS = 20_000  # rows from which the first clusters are found
ERROR_BLOCK_NUMBERS = 2**15  # numbers whose squares are summed at a time: they fit into the cache
# options
NOT_BY_BATCHES = (
    *(
        "id",
        "keep",
        "path",
        "algorithm",
        "min_cluster_size",
        "plot",
        "profiles",
        "scale",
        "drop_missing",
    ),
)


def cluster_by_batches(args):
    """Cluster a file in three passes: read all to draw a sample, fit, label.

    The rows of a file may be in any order, so the sample is drawn from all of it.
    """
    refuse_given(args, NOT_BY_BATCHES, "--batch-size: {} needs the whole table at once")
    refuse_text_options(args, "has no meaning with --batch-size")
    if args.data is None or suffix_of(args.data) not in BY_BATCHES:
        raise UserError(f"--batch-size: the name of DATA must end in {one_of(BY_BATCHES)}")
    begin = perf_counter()
    try:
        with named_file(args.data, BY_BATCHES) as source:
            batches = NpyBatches if source.kind == ".npy" else ParquetBatches
            table = batches(source, Wanted.of(args), args.batch_size)
            sample = draw_sample(table, np.random.default_rng(args.seed or 0))
            reading = perf_counter() - begin
            warn_of_identifiers(args, table, sample)
            model, fitting = timed(fit, args, table, sample)
            begin = perf_counter()
            sizes, error = label(args, table, model)
    except OSError as error:
        raise UserError(f"cannot read {in_words(args.data)}: {error.strerror or error}") from error
    except MemoryError as error:
        raise UserError("not enough memory for a batch: give a smaller --batch-size") from error
    labeling = perf_counter() - begin
    k, empty = len(sizes), int((sizes == 0).sum())
    origin = "the squared distance at which a cluster opens"
    sentence = by_penalty_in_words(k, model.lam_, origin)
    if args.n_clusters is not None:
        sentence = given_in_words(k)
    if empty:
        sentence = f"{sentence[:-1]}; {empty} of them without rows."
    answer = Answer(
        sentence,
        {"K": k, "sizes": sizes_in_words(sizes, "points")},
        about={
            "data": f"{table.name}, {columns_in_short(table.titles)}",
            "n": table.n,
            "d": len(table.titles),
            "batches": f"{-(-table.n // args.batch_size):,} of up to "
            f"{counted(args.batch_size, 'row')}",
            "sample": f"{len(sample):,} rows, drawn at random, for the clusters to begin with",
        },
        details={
            "lam": f"{model.lam_:.8g} ({origin})",
            "objective": f"{error + model.lam_ * k:.10g} (SSE + lam K)",
            "SSE": f"{error:.10g}",
            "seconds": f"{reading:.3f} looking, {fitting:.3f} fitting, {labeling:.3f} labeling",
        },
        steps=tuple(steps_by_files(args, drawn=False)),
    )
    answer.tell(args)


def warn_of_identifiers(args, table, sample):
    """Warn of columns that only number the rows, unless the user has named the columns."""
    if args.columns is not None:
        return
    for j, title in enumerate(table.titles):
        if reason := identifies(sample[:, j], title):
            exclude = option_of_names("--exclude", [title])
            complain(f"warning: column {title} takes part: {reason}; {exclude} leaves it out")


class Batches:
    """The rows of a file in batches, with a line of progress.

    ``open``, of a subclass, sets the number of rows ``n`` and the ``titles`` of the columns; its
    ``read`` yields the rows of each batch.
    """

    def __init__(self, source, wanted, size):
        self.source, self.wanted, self.size = source, wanted, size
        self.name = source.name.rpartition("/")[2]
        self.open()
        if not self.n:
            raise UserError(f"{source.name} has no values: 0 rows")

    def rows(self, progress):
        """Yield for each batch the index of its first row, from 0, and the rows."""
        start, begin = 0, perf_counter()
        for X in self.read():
            find_gaps(self.source, self.wanted, X, self.titles, row_name(start))
            yield start, X
            start += len(X)
            if progress is not None:
                rate = start / (perf_counter() - begin or 1.0)
                progress.note = f"{counted(start, 'row')}, {rate:,.0f} a second"
                progress.done = start / self.n


class NpyBatches(Batches):
    """The rows of a .npy file, through a memory map."""

    def open(self):
        """Open the file and find the columns."""
        self.X = open_npy(self.source)
        self.n, d = self.X.shape
        columns = pick_columns(self.source.name, self.wanted, None, d)
        self.picked, self.titles = columns.positions, columns.titles

    def read(self):
        """Yield the rows of each batch."""
        for start in range(0, self.n, self.size):
            # take, not [:, picked], which would copy in Fortran order: rows stay contiguous
            yield np.asarray(self.X[start : start + self.size].take(self.picked, axis=1))


class ParquetBatches(Batches):
    """The rows of a .parquet file."""

    def open(self):
        """Open the file and find the columns, which must be numeric."""
        path = self.source.name
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise UserError(
                f"reading {path} by batches needs pyarrow: pip install 'smallvar[parquet]'"
            ) from error
        try:
            self.file = parquet.ParquetFile(self.source.path)
        except ValueError as error:  # such as pyarrow's error for a damaged file
            raise UserError(f"{path}: {error}") from error
        schema = self.file.schema_arrow
        self.n = self.file.metadata.num_rows
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        refuse_twins(path, schema.names)
        names = [name for name in schema.names if name not in index]
        self.titles = pick_columns(path, self.wanted, names, len(names)).titles
        kinds = [schema.field(title).type for title in self.titles]
        types = pyarrow.types
        numeric = (types.is_integer, types.is_floating, types.is_boolean)
        refused = in_types(self.titles, kinds, lambda kind: any(test(kind) for test in numeric))
        if refused:
            raise UserError(f"{path}{not_numeric(*refused)}; {without_option('--batch-size')}")
        self.dtype = "float32" if all(map(types.is_float32, kinds)) else "float64"

    def read(self):
        """Yield the rows of each batch."""
        try:
            for batch in self.file.iter_batches(self.size, columns=self.titles):
                X = np.empty((batch.num_rows, len(self.titles)), dtype=self.dtype)
                for j, title in enumerate(self.titles):
                    column = batch.column(title).cast(self.dtype, safe=False)
                    X[:, j] = column.to_numpy(zero_copy_only=False)
                yield X
        except ValueError as error:
            raise UserError(f"{self.source.name}: {error}") from error


def row_name(start):
    """The function that names a row of a batch in messages; ``start`` rows precede the batch."""
    return lambda row: f"row {start + row}"


def draw_sample(table, rng):
    """Read the whole file, which checks it, and return a random sample of its rows."""
    drawn = np.sort(rng.choice(table.n, min(BATCH_SAMPLE_ROWS, table.n), replace=False))
    kept = []
    with ProgressLine("looking") as progress:
        for start, X in table.rows(progress):
            low, high = np.searchsorted(drawn, [start, start + len(X)])
            kept.append(X[drawn[low:high] - start])
    return np.vstack(kept)


def fit(args, table, sample):
    """Fit to all batches in one pass, starting from the clusters of the sample."""
    from sklearn.base import clone

    from smallvar import MiniBatchDPMeans

    model = MiniBatchDPMeans(
        lam=penalty_of(args),
        n_clusters=args.n_clusters,
        guess=args.guess or min(8, len(sample)),
        max_clusters=args.max_clusters,
        random_state=args.seed or 0,
        n_threads=args.threads,
        verbose=args.verbose,
    )
    with warnings_told(table.titles):
        model.fit(sample)
    most = args.max_clusters if args.n_clusters is None else args.n_clusters
    # the stream starts from the centers of the sample, without their weights
    stream = clone(model).set_params(
        lam=model.lam_, n_clusters=None, max_clusters=most, init=model.cluster_centers_
    )
    for start, X in table.rows(ProgressLine.current):
        stream.partial_fit(X)
        if args.verbose:
            print(f"row {start + len(X)}: {stream.n_clusters_} clusters")
    return stream


def label(args, table, model):
    """Write the labels of all rows; returns the sizes of the clusters and the SSE."""
    sizes, error = np.zeros(model.n_clusters_, dtype=np.int64), 0.0
    with labels_by_batches(args, table.n) as write, ProgressLine("labeling") as progress:
        for _, X in table.rows(progress):
            labels = model.predict(X)
            write(labels)
            sizes += np.bincount(labels, minlength=len(sizes))
            error += squared_error(X, labels, model.cluster_centers_)
    return sizes, error


def squared_error(X, labels, centers):
    """The sum of squared distances of rows from the centers of their labels, in float64."""
    step, error = max(1, ERROR_BLOCK_NUMBERS // X.shape[1]), 0.0
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        offset = centers.take(labels[rows], axis=0)  # several times as fast as centers[labels]
        offset -= X[rows]
        error += float(np.vdot(offset, offset))
    return error
