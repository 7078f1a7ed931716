"""Rows whose columns are of several kinds, packed: numbers are a matrix, and codes are another one."""

from cython.parallel cimport prange

from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport poll_signals

import numpy as np

cdef inline void add_exactly(double* high, double* low, double value) noexcept nogil:
    """high + low += value: the rounding of ``high`` goes to ``low`` (Knuth's TwoSum)."""
    cdef double total = high[0] + value, part = total - high[0]
    low[0] += (high[0] - (total - part)) + (value - part)
    high[0] = total


cdef inline Py_ssize_t sums_width(const MixedTable* table) noexcept nogil:
    return 5 * table.p + 2 * table.begin[table.q] + 3


cdef void add_row(
    const MixedTable* table, const MixedRow* row, double w, double count, double* sums
) noexcept nogil:
    """Add a row to the sums of its cluster, or take it out (w and count negative).

    These are: w x (high p, low p), w (high p, low p), members (p), weights of the levels (high, low), and weight (high,
    low) and members of the cluster.
    """
    cdef Py_ssize_t m, j, p = table.p, levels = table.begin[table.q]
    cdef double* cell = sums
    # the layout of a cluster's numbers is that of the docstring, part after part
    for m in range(row.n_numbers):
        j = row.at[m]
        add_exactly(cell + j, cell + p + j, w * row.x[m])
        add_exactly(cell + 2 * p + j, cell + 3 * p + j, w)
        cell[4 * p + j] += count
    cell += 5 * p
    for m in range(row.n_levels):
        j = row.level[m]
        add_exactly(cell + j, cell + levels + j, w)
    cell += 2 * levels
    add_exactly(cell, cell + 1, w)
    cell[2] += count


cdef void add_part(
    const MixedTable* table, Py_ssize_t start, Py_ssize_t stop, MixedRow* row, const int* labels, double* sums
) noexcept nogil:
    """Add points to the sums of their clusters."""
    cdef Py_ssize_t i, width = sums_width(table)
    for i in range(start, stop):
        read_point(table, i, row)
        add_row(table, row, weight_of_point(table, i), 1.0, sums + labels[i] * width)


cdef void unite_parts(double* sums, const double* part, Py_ssize_t k, const MixedTable* table) noexcept nogil:
    """Add the sums of a part to those of the parts before."""
    cdef Py_ssize_t c, j, p = table.p, levels = table.begin[table.q], width = sums_width(table)
    cdef double* to
    cdef const double* from_part
    for c in range(k):
        to, from_part = sums + c * width, part + c * width
        for j in range(p):
            add_exactly(to + j, to + p + j, from_part[j])
            to[p + j] += from_part[p + j]
            add_exactly(to + 2 * p + j, to + 3 * p + j, from_part[2 * p + j])
            to[3 * p + j] += from_part[3 * p + j]
            to[4 * p + j] += from_part[4 * p + j]
        to, from_part = to + 5 * p, from_part + 5 * p
        for j in range(levels):
            add_exactly(to + j, to + levels + j, from_part[j])
            to[levels + j] += from_part[levels + j]
        to, from_part = to + 2 * levels, from_part + 2 * levels
        add_exactly(to, to + 1, from_part[0])
        to[1] += from_part[1]
        to[2] += from_part[2]


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
        low, high = (
            of_two.reduce(numbers, axis=0, initial=end).astype(np.float64)
            for of_two, end in ((np.fmin, np.inf), (np.fmax, -np.inf))
        )
        self.arrays = {
            "rows": (numbers, codes, weight, order), "facts": (kind, begin, place, shares),
            "factor": np.asarray(factor), "range": (low, high),
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

    def sums(self, Py_ssize_t k):
        """Sums of the clusters of the labels, (k, width), and their layout; see ``Sums`` in _mixed."""
        cdef const MixedTable* table = &self.table
        cdef Py_ssize_t width = sums_width(table), n = table.n, parts, size, part, n_chunks
        cdef const int[::1] labels = self.labels
        cdef ParallelLoop loop
        parts = max(<Py_ssize_t> 1, min(<Py_ssize_t> SUM_CHUNKS, SUM_NUMBERS // (k * width)))
        size = max(<Py_ssize_t> SUM_ROWS, (n + parts - 1) // parts)
        n_chunks = max(<Py_ssize_t> 1, (n + size - 1) // size)
        cdef double[:, ::1] sums = np.zeros((n_chunks, k * width))
        if n and not (np.min(labels) >= 0 and np.max(labels) < k):
            raise ValueError(f"labels must be >= 0 and < {k}")
        if n == 0:
            return np.asarray(sums).reshape(k, width)
        with nogil:
            loop = begin_loop(n_chunks, self.n_threads if 8 * n * (table.p + table.q) > PAYS else 1)
            for part in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                add_part(
                    table, part * size, min(n, (part + 1) * size), &self.rows[begin_chunk(&loop)], &labels[0],
                    &sums[part, 0],
                )
            end_loop(&loop)
            for part in range(1, n_chunks):
                unite_parts(&sums[0, 0], &sums[part, 0], k, table)
        poll_signals(&self.work, 1, 0)
        return np.asarray(sums)[0].reshape(k, width)

    def move_sums(self, double[:, ::1] sums, const int[::1] before):
        """Make the sums of the clusters of the labels ``before`` those of the labels (INOUT); rows have no weights.

        Then all but w x are whole numbers, of which nothing is left where there are no members.
        """
        cdef const MixedTable* table = &self.table
        cdef MixedRow* row = &self.rows[0]
        cdef const int[::1] labels = self.labels
        cdef Py_ssize_t i, j, m, p = table.p, k = sums.shape[0]
        cdef double* own
        if before.shape[0] != table.n or table.weight != NULL or sums.shape[1] != sums_width(table):
            raise ValueError("sums and labels must be those of these rows, without weights")
        if table.n and not (min(np.min(labels), np.min(before)) >= 0 and max(np.max(labels), np.max(before)) < k):
            raise ValueError(f"labels must be >= 0 and < {k}")
        with nogil:
            for i in range(table.n):
                if labels[i] == before[i]:
                    continue
                read_point(table, i, row)
                own = &sums[before[i], 0]
                add_row(table, row, -1.0, -1.0, own)
                for m in range(row.n_numbers):
                    j = row.at[m]
                    if own[4 * p + j] == 0.0:
                        own[j] = own[p + j] = 0.0
                add_row(table, row, 1.0, 1.0, &sums[labels[i], 0])
        poll_signals(&self.work, 1, 0)

    @property
    def factor(self):
        """What divergences of the columns of numbers are multiplied by, (p,): not a copy."""
        return self.arrays["factor"][: self.table.p]
