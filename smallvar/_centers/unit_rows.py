"""Rows divided by their lengths, and which have none.

``rows_with_direction`` is for data, ``unit_rows`` for centers. Of many numbers no copy is made, but
rows are divided when they are read (``DividedRows``): the same numbers.
"""

import warnings

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import gen_batches

from smallvar._core.validation import some_rows, sparse_rows
from smallvar._sweeps.rows import DividedRows
from smallvar._sweeps.seeds import nearest_seed

UNIT = 64  # of the type's epsilon: rows whose squared length is that near to 1 are used as they are
BLOCK = 1 << 17  # numbers converted at a time
COPIED = 1 << 22  # numbers of rows up to which one copy is made of these: that takes less time
SHORTEST, LONGEST = 1e-290, 1e290  # lengths of rows that can be divided by them at once


def squares(X):
    """The squared length of each row, added in the order of the columns."""
    total = np.zeros(X.shape[0])
    for column in X.T:
        total += np.square(column)
    return total


def lengths(X):
    """The length of each row."""
    return np.sqrt(squares(X))


def length_rounding(X):
    """The squared distance that errors of lengths may make."""
    return float(np.square(UNIT * np.finfo(X.dtype).eps))


def squared_lengths(X, n_threads):
    """The squared length of each row of data."""
    squares = np.full(X.shape[0], np.inf)
    nearest_seed(X, None, np.zeros(X.shape[1]), squares, n_threads)
    return squares


def are_not_unit(squares, dtype):
    """The rows of these squared lengths whose length is not 1 up to rounding."""
    return np.flatnonzero(~(np.abs(squares - 1.0) <= UNIT * np.finfo(dtype).eps))


def divided(values, largest, squares_of):
    """Numbers of rows divided by the lengths of these, of whose numbers ``largest`` is the largest.

    ``squares_of(values)`` are the squared lengths. By a power of two first: squares then neither
    vanish nor overflow.
    """
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


def unit_and_zero_rows(X, n_threads, divided=False):
    """The rows, of length 1 where they have a direction, and the numbers of those that are zero.

    ``divided``: of many dense numbers no copy is made, but DividedRows of the same numbers.
    """
    if issparse(X):
        return unit_sparse_rows(X, n_threads)
    if divided and X.size > COPIED and X.dtype != np.float16:
        rows, zero = divided_rows(X, n_threads)
        if rows is not None:
            return rows, zero
    return unit_dense_rows(X, n_threads)


def rows_with_direction(X, n_threads):
    """The rows that are not zero, at length 1, and their numbers; None where these are all."""
    rows, zero = unit_and_zero_rows(X, n_threads, divided=True)
    if not len(zero):
        return rows, None
    used = np.delete(np.arange(X.shape[0]), zero)
    if not len(used):
        return some_rows(rows, used), used
    # again without them, so that all that follows is as if they had never been there
    return unit_and_zero_rows(some_rows(X, used), n_threads, divided=True)[0], used


def warn_of_zero_rows(count, first=None, stacklevel=5):
    """Warn of rows that have no direction, if there are any; ``first`` is the index of one."""
    if not count:
        return
    where = "" if first is None else f", the first at index {first}"
    warnings.warn(
        f"X has {count:,} {'row' if count == 1 else 'rows'} of length zero{where}: without a "
        "direction they take no part in the fit, and get the label -1",
        UserWarning,
        stacklevel=stacklevel,  # the caller of ``fit``, which is wrapped
    )


def no_direction(n):
    """The message for n rows that are all zero."""
    return f"X must have a row that has a direction, got {n:,} of length zero"


def divided_rows(X, n_threads):
    """The rows, divided when they are read, and which are zero; None where lengths are extreme."""
    length, zero, all_unit = squared_lengths(X, n_threads), [], True
    for part in gen_batches(X.shape[0], max(1, BLOCK // X.shape[1])):
        off = are_not_unit(length[part], X.dtype)
        block = np.array(X[part][off], dtype=np.float64)
        largest = np.abs(block).max(axis=1)
        zero.append(part.start + off[largest == 0.0])
        block[largest == 0.0] = 1.0  # any number: the caller leaves these rows out
        # by a power of two before they are squared: squares neither vanish nor overflow
        exponent = np.frexp(largest)[1]
        with np.errstate(over="ignore", under="ignore"):
            found = np.ldexp(np.sqrt(squares(np.ldexp(block, -exponent[:, None]))), exponent)
        length[part] = 1.0
        length[part][off] = found
        if len(off):
            all_unit = False
            # such lengths cannot divide at once: the caller makes a copy, scaled first
            if not SHORTEST < found.min() <= found.max() < LONGEST:
                return None, zero
    return X if all_unit else DividedRows(X, length), np.concatenate(zero)


def unit_dense_rows(X, n_threads):
    """The rows, and which are zero."""
    if X.dtype == np.float16:
        copy, off = np.empty(X.shape, dtype=np.float32), np.arange(X.shape[0])
    else:
        off = are_not_unit(squared_lengths(X, n_threads), X.dtype)
        if not len(off):
            return X, off
        copy = np.array(X, order="C")
    zero = []
    for part in gen_batches(len(off), max(1, BLOCK // X.shape[1])):
        rows = off[part]
        block = np.array(X[rows], dtype=np.float64)
        largest = np.abs(block).max(axis=1)
        none = largest == 0.0
        zero.append(rows[none])
        block[none], largest[none] = 1.0, 1.0  # any numbers: the caller leaves these rows out
        copy[rows] = divided(block, largest[:, None], lambda rows: squares(rows)[:, None])
    return copy, np.concatenate(zero)


def unit_sparse_rows(X, n_threads):
    """``unit_and_zero_rows`` of sparse rows, with the numbers of the dense ones."""
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
    # entries of rows that must be divided; a row of unit length keeps its very numbers
    at = np.flatnonzero(np.isin(row_of, off) & (largest[row_of] > 0.0))

    def squares_of(values):
        total = np.zeros(X.shape[0])
        np.add.at(total, row_of[at], np.square(values))  # in the order of the columns
        return total[row_of[at]]

    copy.data[at] = divided(X.data[at].astype(np.float64), largest[row_of[at]], squares_of)
    return copy, zero
