"""Dask collections as lists of partitions.

``CollectionParts`` splits a dask array or DataFrame, with values for each row such as weights, into
delayed partitions and checks what is known without computing them. ``checked_block`` checks a
partition on its worker.
"""

import dask.array as da
import numpy as np
from dask import is_dask_collection

from smallvar._core.estimator import usable_rows
from smallvar._core.validation import as_floats, as_weights, single_column
from smallvar.dask._executor import Block


class CollectionParts:
    """Delayed partitions of a dask array or DataFrame, and of the weights of its rows.

    ``rows`` and ``weights`` are lists with an entry for each partition; an entry of ``weights`` may
    be None (all 1) or a number. ``sizes`` are the numbers of rows, None where dask does not know.
    """

    def __init__(self, X, sample_weight=None):
        columns = getattr(X, "columns", None)
        if not is_dask_collection(X) or not (columns is not None or isinstance(X, da.Array)):
            raise TypeError(
                f"X must be a dask array or DataFrame, got {type(X).__name__}: use "
                "dask.array.from_array, or the estimator of smallvar itself for data of one machine"
            )
        self.collection, self.names = X, None
        if columns is not None:  # a DataFrame, which does not know the lengths of its partitions
            self.n_features, self.sizes = len(columns), None
            if all(isinstance(name, str) for name in columns):
                self.names = np.asarray(columns, dtype=object)
            self.rows = X.to_delayed()
            # of columns of several types, the widest counts: they become one array
            itemsize = max(
                [np.dtype(t).itemsize for t in X.dtypes if isinstance(t, np.dtype)] or [8]
            )
        else:
            if X.ndim != 2 or X.numblocks[1] != 1:
                raise ValueError(
                    "X must have two dimensions and its columns in one chunk, got chunks "
                    f"{X.chunks}: use X.rechunk({{1: -1}})"
                )
            self.n_features = X.shape[1]
            # lengths are NaN after operations such as a selection by a mask
            self.sizes = X.chunks[0] if np.isfinite(X.chunks[0]).all() else None
            self.rows = X.to_delayed().ravel().tolist()
            itemsize = X.dtype.itemsize
        if not self.n_features:
            raise ValueError("X must have at least one column, got 0")
        self.row_bytes = itemsize * self.n_features
        self.weights = self._weights(sample_weight)

    def _weights(self, sample_weight):
        """List of the weights of each partition: delayed arrays, numbers or None."""
        if sample_weight is None:
            return [None] * len(self.rows)
        if np.ndim(sample_weight) == 0 and not is_dask_collection(sample_weight):
            return [float(sample_weight)] * len(self.rows)
        return self.split_like_rows(sample_weight, "sample_weight", as_floats)

    def split_like_rows(self, values, name, as_array):
        """Partitions of ``values``, one value for each row; ``name`` is for error messages.

        A dask collection must have the partitions of X; anything else is converted by ``as_array``
        and split where the partitions of X end.
        """
        if is_dask_collection(values):
            parts = np.ravel(np.array(values.to_delayed(), dtype=object)).tolist()
            if len(parts) != len(self.rows):
                raise ValueError(
                    f"{name} must have the partitions of X, got {len(parts)} for {len(self.rows)}"
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


def checked_block(model, n_features, X, weight):
    """Block of a partition: rows checked as ``model`` checks them, and weights as float64."""
    if X.shape[1:] != (n_features,):
        raise ValueError(f"X must have {n_features} columns, got shape {X.shape}")
    n = X.shape[0]
    weight = None if weight is None else as_weights(weight, n)
    if n == 0:
        return Block(np.empty((0, n_features)), weight)
    X, used = usable_rows(model, X)
    if used is None:
        return Block(X, weight)
    return Block(X, None if weight is None else weight[used], n_total=n)
