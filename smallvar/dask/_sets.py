"""Partitions of whole data sets: rows, weights and data sets, checked where they are."""

from dataclasses import dataclass

import numpy as np
from dask import is_dask_collection

from smallvar._core.groups import Groups
from smallvar._core.validation import shown
from smallvar.dask._collection import Parts, prepared
from smallvar.dask._team import Block


class SetParts(Parts):
    """Partitions of rows; ``pairs`` are their weights and data sets."""

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
            sets = self.beside(groups, "groups", np.asarray)
        self.pairs = list(zip(self.weights, sets, strict=True))


@dataclass
class SetBlock(Block):
    """A partition as the sweeps take it: rows of positive weight, and their data sets."""

    sets: Groups
    names: np.ndarray  # of all data sets, also those without weight
    size: int  # rows, also those without weight
    reach: float  # their largest absolute value


def whole_sets(model, n_features, X, pair):
    """The checked rows of a partition, their weights, their data sets."""
    weight, groups = pair
    block = prepared(model, n_features, X, weight)
    n = block.X.shape[0]
    return block.X, block.weight, Groups(groups if n else np.empty(0, dtype=np.int32), n)


def with_weight(X, weight, sets):
    """The partition as the sweeps take it."""
    n, names = X.shape[0], sets.names
    reach = max(float(X.max()), -float(X.min())) if n else 0.0
    if weight is not None and not weight.all():
        rows = np.flatnonzero(weight)
        X, weight, sets = X[rows], weight[rows], Groups(names[sets.number[rows]], len(rows))
    return SetBlock(X, weight, sets, names, n, reach)


def prepared_sets(model, n_features, X, pair):
    """Both."""
    return with_weight(*whole_sets(model, n_features, X, pair))


def names_of(parts, shared, each):
    """Of each partition: its size, names of all data sets, of those with weight, largest value."""
    return {p: (b.size, b.names, b.sets.names, b.reach) for p, b in parts}


def united(several):
    """One dictionary."""
    return {key: value for one in several for key, value in one.items()}


def all_names(names):
    """Groups of the data sets of partitions, one after the other."""
    names = [some for some in names if len(some)]
    kinds = {"U" if some.dtype.kind in "OSUT" else some.dtype.kind for some in names}
    if "U" in kinds and len(kinds) > 1:
        raise ValueError("groups must be all numbers or all strings, got both")
    names = np.concatenate(names)
    return Groups(names, len(names))


def check_whole(known):
    """Raise where a data set lies in more than one partition."""
    sets = all_names([names for _, names, *_ in known.values()])
    count = np.bincount(sets.number)
    if count.max() == 1:
        return
    twice = int(np.argmax(count > 1))
    part = np.repeat(list(known), [len(names) for _, names, *_ in known.values()])
    first, second, *_ = part[sets.number == twice].tolist()
    raise ValueError(
        f"groups must lie whole in one partition each, got {shown(sets.names[twice])} in "
        f"partitions {first} and {second}: repartition by the column of the groups, with set_index "
        "or shuffle of a dask DataFrame, or rechunk arrays where data sets end"
    )
