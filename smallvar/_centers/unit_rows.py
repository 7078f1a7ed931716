"""Rows divided by their lengths, and the numbers of the rows of length zero.

``rows_with_direction`` is for data, ``unit_rows`` for centers.
"""

import tempfile
import warnings

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import gen_batches

from smallvar._core.fitted_rows import is_mapped
from smallvar._core.validation import level_of_caller, some_rows, sparse_rows
from smallvar._sweeps.exact import nearest_seed

UNIT = 64  # times epsilon of the type: a row has length 1 if its squared length is so near to 1
CONVERTED = 1 << 17  # numbers converted at a time
IN_MEMORY = 1 << 22  # numbers up to which a memory map is copied to memory


def squares(X):
    """The squared length of each row, added in the order of the columns."""
    total = np.zeros(X.shape[0])
    for column in X.T:
        total += np.square(column)
    return total


def length_rounding(X):
    """The squared distance that rounding of the lengths of rows, in the type of X, may make."""
    return float(np.square(UNIT * np.finfo(X.dtype).eps))


def squared_lengths(X, n_threads):
    """The squared length of each row of data, dense or sparse: its squared distance from 0."""
    squares = np.full(X.shape[0], np.inf)
    nearest_seed(X, None, np.zeros(X.shape[1]), squares, n_threads)
    return squares


def are_not_unit(squares, dtype):
    """Indices of the rows whose length is not 1 up to rounding, from their squared lengths."""
    return np.flatnonzero(~(np.abs(squares - 1.0) <= UNIT * np.finfo(dtype).eps))


def divided(values, largest, squares_of):
    """Entries of rows, each divided by the length of its row.

    ``largest`` is, for each entry, the largest absolute value in its row, and
    ``squares_of(values)`` the squared length of its row, both > 0.
    """
    # entries are scaled to at most 1, by a power of two: squares do not overflow, the largest does
    # not underflow, and scaling rounds nothing that counts
    values = np.ldexp(values, -np.frexp(largest)[1])
    return values / np.sqrt(squares_of(values))


def unit_rows(X, n_threads, name="X"):
    """Rows of length 1: X itself if all are, up to rounding, else one copy in its own type.

    float16 becomes float32. Rows that have length 1 are the same numbers in the copy.
    """
    copy, zero = unit_and_zero_rows(X, n_threads)
    if len(zero):
        raise ValueError(
            f"{name} must have no rows of length zero, which have no direction, got {len(zero)}, "
            f"the first at index {zero[0]}"
        )
    return copy


def rows_with_direction(X, n_threads):
    """The rows of length > 0, at length 1, and their indices (None: all rows)."""
    rows, zero = unit_and_zero_rows(X, n_threads)
    if not len(zero):
        return rows, None
    used = np.delete(np.arange(X.shape[0]), zero)
    return some_rows(rows, used), used


def warn_of_zero_rows(count, first=None):
    """Warn of rows that have no direction, if there are any; ``first`` is the index of one."""
    if not count:
        return
    where = "" if first is None else f", the first at index {first}"
    warnings.warn(
        f"X has {count:,} {'row' if count == 1 else 'rows'} of length zero{where}: without a "
        "direction they take no part in the fit, and get the label -1",
        UserWarning,
        stacklevel=level_of_caller(),
    )


def no_direction(n):
    """The message for n rows that are all zero."""
    return f"X must have a row that has a direction, got {n:,} of length zero"


def unit_and_zero_rows(X, n_threads):
    """The rows at length 1, and the indices of those of length zero, whose values are undefined."""
    if issparse(X):
        return unit_sparse_rows(X, n_threads)
    if X.dtype == np.float16:
        copy, off = np.empty(X.shape, dtype=np.float32), np.arange(X.shape[0])
    else:
        off = are_not_unit(squared_lengths(X, n_threads), X.dtype)
        if not len(off):
            return X, off
        copy = copied(X)
    zero = []
    for part in gen_batches(len(off), max(1, CONVERTED // X.shape[1])):
        rows = off[part]
        block = np.array(X[rows], dtype=np.float64)
        largest = np.abs(block).max(axis=1)
        is_zero = largest == 0.0
        zero.append(rows[is_zero])
        block[is_zero], largest[is_zero] = 1.0, 1.0  # any values > 0: the caller drops these rows
        copy[rows] = divided(block, largest[:, None], lambda rows: squares(rows)[:, None])
    return copy, np.concatenate(zero)


def copied(X):
    """A contiguous copy; of a memory map, which may be larger than memory, in a temporary file."""
    if X.size <= IN_MEMORY or not is_mapped(X):
        return np.array(X, order="C")
    with tempfile.TemporaryFile() as file:
        for part in gen_batches(X.shape[0], max(1, CONVERTED // X.shape[1])):
            file.write(X[part].tobytes())  # a full disk raises here; by a map it ends the process
        file.flush()
        return np.memmap(file, X.dtype, "r+", shape=X.shape)


def unit_sparse_rows(X, n_threads):
    """``unit_and_zero_rows`` of sparse rows, with the same values as for dense ones."""
    if X.dtype == np.float16:
        X = sparse_rows(X.astype(np.float32))
    off = are_not_unit(squared_lengths(X, n_threads), X.dtype)
    if not len(off):
        return X, off
    copy, row_of = sparse_rows(X), np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    copy.data = X.data.copy()
    largest = np.zeros(X.shape[0])
    np.maximum.at(largest, row_of, np.abs(X.data))
    zero = np.flatnonzero(largest == 0.0)
    # entries of rows that must be divided; a row of unit length keeps its values
    at = np.flatnonzero(np.isin(row_of, off) & (largest[row_of] > 0.0))

    def squares_of(values):
        """For each entry, the squared length of its row."""
        total = np.zeros(X.shape[0])
        np.add.at(total, row_of[at], np.square(values))  # in the order of the columns
        return total[row_of[at]]

    copy.data[at] = divided(X.data[at].astype(np.float64), largest[row_of[at]], squares_of)
    return copy, zero
