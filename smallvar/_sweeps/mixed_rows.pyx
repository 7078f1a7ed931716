"""Rows whose columns are of several kinds, packed: numbers are a matrix, and codes are another one."""

import numpy as np


cdef class MixedRows:
    """Packed rows and their labels.

    numbers : IN array (m, p), float32 or float64, C order;  codes : IN array (m, q), int8, int16 or int32, C order
    weight : IN array (n,) float64 > 0 in the order of visit, or None
    order : IN array (n,) intp, the rows that are visited; None: all, as given
    kind : IN array (p,) int32;  begin : IN array (q + 1,) intp
    place : IN array (p,);  shares : IN array (levels,)
    """

    def __init__(
        self, numbers, codes, const double[::1] weight, const Py_ssize_t[::1] order, const int[::1] kind,
        const Py_ssize_t[::1] begin, const double[::1] place, const double[::1] shares, double pseudo_count,
        int n_threads,
    ):
        cdef Py_ssize_t p = numbers.shape[1], q = codes.shape[1], n = len(numbers) if order is None else len(order)
        cdef double[::1] factor = np.ones(max(1, p))
        for array in (numbers, codes):
            if not (array.flags.c_contiguous and array.flags.aligned and array.ndim == 2):
                raise ValueError("numbers and codes must be aligned matrices in C order")
        if (
            numbers.dtype not in (np.float32, np.float64) or codes.dtype not in (np.int8, np.int16, np.int32)
            or len(codes) != len(numbers) or kind.shape[0] != p or place.shape[0] != p or begin.shape[0] != q + 1
            or shares.shape[0] != begin[q] or (weight is not None and weight.shape[0] != n)
        ):
            raise ValueError("numbers, codes and what is said of them must match")
        if order is not None and n and not (np.min(order) >= 0 and np.max(order) < len(numbers)):
            raise ValueError("order must be rows")
        if q and len(codes) and not (np.max(codes, axis=0) < np.diff(begin)).all():
            raise ValueError("codes must be levels")
        self.labels = np.zeros(n, dtype=np.int32)
        self.n_threads = max(1, n_threads)
        self.table.numbers, self.table.codes = <void*> <size_t> numbers.ctypes.data, <void*> <size_t> codes.ctypes.data
        self.table.single, self.table.code_size = numbers.dtype == np.float32, codes.dtype.itemsize
        self.table.p, self.table.q, self.table.n, self.table.pseudo_count = p, q, n, pseudo_count
        self.table.order = &order[0] if order is not None and n else NULL
        self.table.weight = &weight[0] if weight is not None and n else NULL
        self.table.kind = &kind[0] if p else NULL
        self.table.place = &place[0] if p else NULL
        self.table.begin = &begin[0]
        self.table.shares = &shares[0] if begin[q] else NULL
        self.table.factor = &factor[0]
        self.arrays = {
            "rows": (numbers, codes, weight, order), "facts": (kind, begin, place, shares), "factor": np.asarray(factor)
        }
        self.make_scratch()

    cdef make_scratch(self):
        """Memory for a decoded row of each thread."""
        cdef Py_ssize_t p = self.table.p, q = self.table.q, t, size = sizeof(MixedRow)
        cdef double[:, ::1] x = np.empty((self.n_threads, 2 * p + 8))
        cdef Py_ssize_t[:, ::1] at = np.empty((self.n_threads, p + q + 8), dtype=np.intp)
        cdef unsigned char[::1] rows = np.zeros(self.n_threads * size, dtype=np.uint8)
        self.rows = <MixedRow*> &rows[0]
        for t in range(self.n_threads):
            self.rows[t].x, self.rows[t].shifted = &x[t, 0], &x[t, p]
            self.rows[t].at, self.rows[t].level = &at[t, 0], &at[t, p]
        self.memory = x, at, rows

    @property
    def factor(self):
        """What divergences of the columns of numbers are multiplied by, (p,): not a copy."""
        return self.arrays["factor"][: self.table.p]
