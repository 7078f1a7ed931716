"""Partitions of whole data sets, for the hard HDP: rows, weights, and the data set of each row.

``SetParts`` is what the driver has of a collection. The functions after it run on the workers and
check a partition; the last three put the names of data sets together on the driver.
"""

from dataclasses import dataclass

import numpy as np
from dask import is_dask_collection

from smallvar._core.groups import Groups
from smallvar._core.validation import shown
from smallvar.dask._collection import CollectionParts, checked_block
from smallvar.dask._executor import Block


class SetParts(CollectionParts):
    """Partitions of a collection; ``pairs`` are the weights and data sets of each, delayed.

    ``groups`` may be the name of a column of a DataFrame X, which is then not part of the data.
    """

    def __init__(self, X, groups, sample_weight):
        if groups is not None and not is_dask_collection(groups) and np.ndim(groups) == 0:
            columns = getattr(X, "columns", ())
            if groups not in columns:
                raise ValueError(
                    "groups must be a dask collection with the partitions of X or, for a "
                    f"DataFrame, one of its columns, got {shown(groups)}"
                )
            X, groups = X.drop(columns=[groups]), X[groups]
        super().__init__(X, sample_weight)
        sets = [None] * len(self.rows)
        if groups is not None:
            sets = self.split_like_rows(groups, "groups", np.asarray)
        self.pairs = list(zip(self.weights, sets, strict=True))


@dataclass
class SetBlock(Block):
    """Rows of a partition that have positive weight, their weights, and their data sets.

    The other fields are about all rows, also those of weight zero.
    """

    sets: Groups
    names: np.ndarray  # names of the data sets
    n_rows: int
    max_abs: float  # largest absolute value


def checked_sets(model, n_features, X, pair):
    """Checked rows of a partition, their weights, and their data sets."""
    weight, groups = pair
    block = checked_block(model, n_features, X, weight)
    n = block.X.shape[0]
    return block.X, block.weight, Groups(groups if n else np.empty(0, dtype=np.int32), n)


def without_idle_rows(X, weight, sets):
    """SetBlock of a partition: rows of weight zero are left out."""
    n, names = X.shape[0], sets.names
    max_abs = max(float(X.max()), -float(X.min())) if n else 0.0
    if weight is not None and not weight.all():
        rows = np.flatnonzero(weight)
        X, weight, sets = X[rows], weight[rows], sets.of(rows)
    return SetBlock(X, weight, sets, names, n, max_abs)


def checked_set_block(model, n_features, X, pair):
    """SetBlock of a partition, from unchecked rows and the pair of their weights and groups."""
    return without_idle_rows(*checked_sets(model, n_features, X, pair))


def names_of_sets(parts, shared, each):
    """Number of rows, names of all data sets and of those with weight, and largest value.

    Returns a dict by partition.
    """
    return {p: (block.n_rows, block.names, block.sets.names, block.max_abs) for p, block in parts}


def merge_dicts(several):
    """Union of dictionaries with different keys."""
    return {key: value for result in several for key, value in result.items()}


def concatenated_names(names):
    """Groups of all data sets, from the arrays of their names in each partition."""
    names = [part for part in names if len(part)]
    kinds = {"U" if part.dtype.kind in "OSUT" else part.dtype.kind for part in names}
    if "U" in kinds and len(kinds) > 1:
        raise ValueError("groups must be all numbers or all strings, got both")
    names = np.concatenate(names)
    return Groups(names, len(names))


def check_not_split(info):
    """Raise a ValueError if a data set lies in more than one partition.

    ``info`` is the result of ``names_of_sets`` for all partitions.
    """
    sets = concatenated_names([names for _, names, *_ in info.values()])
    count = np.bincount(sets.number)
    if count.max() == 1:
        return
    twice = int(np.argmax(count > 1))
    part = np.repeat(list(info), [len(names) for _, names, *_ in info.values()])
    first, second, *_ = part[sets.number == twice].tolist()
    raise ValueError(
        f"groups must lie whole in one partition each, got {shown(sets.names[twice])} in "
        f"partitions {first} and {second}: repartition by the column of the groups, with set_index "
        "or shuffle of a dask DataFrame, or rechunk arrays where data sets end"
    )
