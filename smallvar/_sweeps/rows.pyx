"""Access to dense and sparse rows in memory, see rows.pxd."""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from smallvar._sweeps.tolerances cimport (
    C_LARGEST_ERROR,
    C_LARGEST_REACH,
    C_LARGEST_WEIGHT,
    C_LARGEST_WEIGHT_RATIO,
    C_SMALLEST_REACH,
    C_SMALLEST_WEIGHT,
)

import numpy as np
from scipy.sparse import issparse

ctypedef fused begin_t:     # types of the arrays of CSR data
    int
    int64_t

ctypedef fused column_t:
    int
    int64_t

cdef int NO_COLUMN = 0  # of data without any entry
# Rows are checked before they are used. That says nothing where such checks are switched off (assume_finite), or where
# a callback, a thread, or another process that has mapped the same file, writes to them afterward.
UNSOUND = (
    "X must be finite, and must not change while it is used, got numbers that are not finite, or others than before"
)
# the same numbers for Python
SMALLEST_REACH, LARGEST_REACH, LARGEST_ERROR = C_SMALLEST_REACH, C_LARGEST_REACH, C_LARGEST_ERROR
SMALLEST_WEIGHT, LARGEST_WEIGHT, LARGEST_WEIGHT_RATIO = C_SMALLEST_WEIGHT, C_LARGEST_WEIGHT, C_LARGEST_WEIGHT_RATIO


def is_canonical(const begin_t[::1] begin, const column_t[::1] column):
    """Whether the columns of each row of CSR data ascend, each only once."""
    cdef Py_ssize_t i, m
    for i in range(begin.shape[0] - 1):
        for m in range(begin[i] + 1, begin[i + 1]):
            if column[m] <= column[m - 1]:
                return False
    return True


cdef enum:
    LANES = 8               # words that are hashed side by side, each with the words at its place
    HASHED = 1 << 25        # bytes between two checks for signals


cdef inline uint64_t hashed(uint64_t value, const unsigned char* data, Py_ssize_t size) noexcept nogil:
    """A hash that goes on with at most 8 bytes; no two words give the same one.

    The factor is odd, and the rotation brings what changed the high bits back to the low ones: both can be undone.
    """
    cdef uint64_t word = 0
    memcpy(&word, data, size)
    value = (value ^ word) * <uint64_t> 0x9E3779B97F4A7C15
    return value << 31 | value >> 33


cdef uint64_t hash_of(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    """A hash of ``size`` bytes, which changes for sure if one number does."""
    cdef uint64_t[LANES] lane
    cdef uint64_t out = size
    cdef Py_ssize_t i, m, words = size // 8
    for m in range(LANES):
        lane[m] = m
    for i in range(words // LANES):
        for m in range(LANES):
            lane[m] = hashed(lane[m], data + 8 * (i * LANES + m), 8)
    for i in range(words // LANES * LANES, words):
        out = hashed(out, data + 8 * i, 8)
    out = hashed(out, data + 8 * words, size % 8)
    for m in range(LANES):
        out = hashed(out, <const unsigned char*> &lane[m], 8)
    return out


def fingerprint(array):
    """A tuple of hashes of an array of numbers, which change with any number, and its shape."""
    cdef const unsigned char[::1] data
    cdef uint64_t value
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        array = array.T
    cdef Py_ssize_t size = max(1, HASHED // max(1, array.nbytes // max(1, len(array))))
    out = [array.shape]
    for first in range(0, len(array), size):
        data = np.ascontiguousarray(array[first : first + size]).reshape(-1).view(np.uint8)
        value = 0
        if data.shape[0] > 0:
            with nogil:
                value = hash_of(&data[0], data.shape[0])
        out.append(value)
    return tuple(out)


cdef int refuse_rows() except -1 nogil:
    """Raise where something happens that cannot with rows as they were checked."""
    with gil:
        raise ValueError(UNSOUND)


cdef Rows rows_of(X, const double[::1] weight, const Py_ssize_t[::1] order) except *:
    """Rows of an array (n, d), float32 or float64, which the caller keeps alive, as it does weight and order.

    Or of a sparse one, as sparse_rows of _core/validation.py makes them: CSR, columns ascending, as int32.

    weight : (n,) in the order of visit, or None;  order : (n,), a permutation, or None
    """
    cdef const float[:, :] single
    cdef const double[:, :] double_
    cdef const float[::1] single_entries
    cdef const double[::1] double_entries
    cdef const int[::1] column, begin_int
    cdef const int64_t[::1] begin_long
    cdef Rows r
    r.column, r.begin_int, r.begin_long = NULL, NULL, NULL
    if issparse(X):
        column = X.indices
        r.x, r.column, r.single = NULL, &NO_COLUMN, X.dtype == np.float32
        r.n, r.d = X.shape
        r.row, r.col = 0, 1
        if column.shape[0] > 0:
            r.column = &column[0]
            if r.single:
                single_entries = X.data
                r.x = &single_entries[0]
            else:
                double_entries = X.data
                r.x = &double_entries[0]
        if X.indptr.dtype.itemsize == 4:
            begin_int = X.indptr
            r.begin_int = &begin_int[0]
        else:
            begin_long = X.indptr
            r.begin_long = &begin_long[0]
    elif X.dtype == np.float32:
        single = X
        r.x, r.single, r.n, r.d = &single[0, 0], True, single.shape[0], single.shape[1]
        r.row, r.col = single.strides[0] // 4, single.strides[1] // 4
    else:
        double_ = X
        r.x, r.single, r.n, r.d = &double_[0, 0], False, double_.shape[0], double_.shape[1]
        r.row, r.col = double_.strides[0] // 8, double_.strides[1] // 8
    if weight is not None and weight.shape[0] != r.n:
        raise ValueError("weight must match X")
    if order is not None and order.shape[0] != r.n:
        raise ValueError("order must match X")
    r.weight = NULL if weight is None else &weight[0]
    r.order = NULL if order is None else &order[0]
    return r
