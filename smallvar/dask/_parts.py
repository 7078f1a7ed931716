"""Dask collections as lists of partitions, and the checked rows of one partition.

``Parts`` splits a dask array or DataFrame, with values for each row such as weights, into delayed
partitions and checks what is known without computing them. ``checked_block`` checks a partition on
its worker. The functions after it are about data sets, which must each lie in one partition.
"""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask import is_dask_collection
from numpy.typing import NDArray

from smallvar._core.estimator import usable_rows
from smallvar._core.groups import Groups
from smallvar._core.validation import as_floats, as_weights, check_reach, shown, single_column


class Parts:
    """Delayed partitions of a dask array or DataFrame, of weights and of data sets of its rows.

    ``each`` has, for each partition, its rows, weights (or None, or a number) and data sets (or
    None). ``sizes`` are the numbers of rows, None where dask does not know. ``groups`` may be the
    name of a column of a DataFrame X, which is then not part of the data.
    """

    def __init__(self, X, sample_weight=None, groups=None):
        columns = getattr(X, "columns", None)
        if not is_dask_collection(X) or not (columns is not None or isinstance(X, da.Array)):
            raise TypeError(
                f"X must be a dask array or DataFrame, got {type(X).__name__}: use "
                "dask.array.from_array, or the methods of the model for data of one machine"
            )
        if groups is not None and np.ndim(groups) == 0 and not is_dask_collection(groups):
            if columns is None or groups not in columns:
                raise ValueError(
                    "groups must be a dask collection with the partitions of X or, for a "
                    f"DataFrame, one of its columns, got {shown(groups)}"
                )
            X, groups = X.drop(columns=[groups]), X[groups]
        if columns is not None:  # a DataFrame, which does not know the lengths of its partitions
            self.names, self.sizes, rows = list(X.columns), None, X.to_delayed()
            types = [t for t in X.dtypes if isinstance(t, np.dtype)]
        else:
            if X.ndim != 2 or X.numblocks[1] != 1:
                raise ValueError(
                    "X must have two dimensions and its columns in one chunk, got chunks "
                    f"{X.chunks}: use X.rechunk({{1: -1}})"
                )
            # lengths are NaN after operations such as a selection by a mask
            self.sizes = X.chunks[0] if np.isfinite(X.chunks[0]).all() else None
            self.names, rows, types = None, X.to_delayed().ravel().tolist(), [X.dtype]
        self.collection = X
        self.n_features = X.shape[1] if columns is None else len(self.names)
        if not self.n_features:
            raise ValueError("X must have at least one column, got 0")
        # of columns of several types, the widest counts: they become one array
        self.row_bytes = max([t.itemsize for t in types] or [8]) * self.n_features
        # of results that have the type of the data
        self.dtype = np.float32 if types and all(t == np.float32 for t in types) else np.float64
        weights, sets = [None] * len(rows), [None] * len(rows)
        if sample_weight is not None:
            if np.ndim(sample_weight) == 0 and not is_dask_collection(sample_weight):
                weights = [float(sample_weight)] * len(rows)
            else:
                weights = self._split(sample_weight, len(rows), "sample_weight", as_floats)
        if groups is not None:
            sets = self._split(groups, len(rows), "groups", np.asarray)
        self.each = list(zip(rows, weights, sets, strict=True))

    def _split(self, values, count, name, as_array):
        """List of the ``values`` of each partition, one for each row; ``name`` is for errors.

        A dask collection must have the partitions of X; anything else is converted by ``as_array``
        and split where the partitions of X end.
        """
        if is_dask_collection(values):
            parts = np.ravel(np.array(values.to_delayed(), dtype=object)).tolist()
            if len(parts) != count:
                raise ValueError(
                    f"{name} must have the partitions of X, got {len(parts)} for {count}"
                )
            return parts
        values = as_array(values)
        if self.sizes is None:
            raise ValueError(
                f"{name} must be a dask collection where the sizes of the partitions of X "
                "are not known"
            )
        values = single_column(values, name, sum(self.sizes))
        return np.split(values, np.cumsum(self.sizes)[:-1])

    def no_rows(self):
        """A table of no rows with the columns of the collection, for checks of their names."""
        if self.names is None:
            return np.empty((0, self.n_features))
        import pandas as pd

        return pd.DataFrame(np.empty((0, self.n_features)), columns=self.names)


# ---- one partition -------------------------------------------------------------------------------


@dataclass
class Block:
    """Checked rows of a partition that take part in a fit, and their weights (None: all 1).

    ``n_total`` counts all rows. Of a fit of data sets, rows of weight zero take no part; ``sets``
    are the data sets of the others, and ``names`` all data sets of the partition.
    """

    X: NDArray[np.floating]
    weight: NDArray[np.float64] | None
    n_total: int
    sets: Groups | None = None
    names: NDArray[Any] | None = None


@contextmanager
def name_partition(number):
    """Context that puts the number of the partition in front of error messages."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise type(error)(f"partition {number}: {error}") from None


def checked_sets(groups, n):
    """Groups of the n rows of a partition, which may have none."""
    return Groups(groups if n else np.empty(0, dtype=np.int32), n)


def checked_block(model, n_features, number, X, weight, groups):
    """Block of partition ``number``: rows checked as ``model`` checks them."""
    with name_partition(number):
        if X.shape[1:] != (n_features,):
            raise ValueError(f"X must have {n_features} columns, got shape {X.shape}")
        n, used = X.shape[0], None
        weight = None if weight is None else as_weights(weight, n)
        X, used = usable_rows(model, X) if n else (np.empty((0, n_features)), None)
        if used is not None and weight is not None:
            weight = weight[used]
        if groups is None:
            return Block(X, weight, n)
        check_reach(X)
        sets = checked_sets(groups, n)
        names = sets.names
        if weight is not None and not weight.all():
            rows = np.flatnonzero(weight)
            X, weight, sets = X[rows], weight[rows], sets.of(rows)
        return Block(X, weight, n, sets, names)


# ---- data sets -----------------------------------------------------------------------------------


def concatenated_names(names):
    """Groups of all data sets, from the arrays of their names in each partition."""
    names = [part for part in names if len(part)]
    kinds = {"U" if part.dtype.kind in "OSUT" else part.dtype.kind for part in names}
    if "U" in kinds and len(kinds) > 1:
        raise ValueError("groups must be all numbers or all strings, got both")
    names = np.concatenate(names)
    return Groups(names, len(names))


def check_not_split(names):
    """Raise a ValueError if a data set lies in more than one partition; ``names`` are a dict."""
    sets = concatenated_names(names.values())
    count = np.bincount(sets.number)
    if count.max() == 1:
        return
    twice = int(np.argmax(count > 1))
    part = np.repeat(list(names), [len(some) for some in names.values()])
    first, second, *_ = part[sets.number == twice].tolist()
    raise ValueError(
        f"groups must lie whole in one partition each, got {shown(sets.names[twice])} in "
        f"partitions {first} and {second}: repartition by the column of the groups, with set_index "
        "or shuffle of a dask DataFrame, or rechunk arrays where data sets end"
    )
