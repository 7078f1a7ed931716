"""Records cut into segments: the best states given the centers, and the best pieces without any.

The record is made of sequences: rows begin[q]..begin[q + 1] - 1 are one. What changes at the first row of a sequence
costs nothing.
"""

from libc.math cimport HUGE_VAL
from libc.stdint cimport uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcpy, memset

from smallvar._sweeps.pool cimport PAYS, run
from smallvar._sweeps.in_order cimport CHUNK, WORK
from smallvar._sweeps.rows cimport Rows, poll_signals, read_row, row_at, rows_of, weight_of

import numpy as np

cdef extern from "_exact.h" nogil:
    void sc_squares(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, double*)

cdef enum:
    BLOCK = 1 << 20     # costs in hand at a time
    WORD = 64           # states in a word of bits


cdef struct Costs:      # of the rows start..stop-1
    const Rows* rows
    Py_ssize_t start
    Py_ssize_t stop
    Py_ssize_t k            # centers
    Py_ssize_t room         # k, or what is wide enough for whole vectors
    const double* columns   # d x room: the centers in columns
    double* space           # threads x d, scratch: the row in hand
    double* cost            # (stop - start) x room


cdef void cost_item(void* context, Py_ssize_t chunk, int slot) noexcept nogil:
    """w ||x - c||^2 of the rows of a chunk and all centers."""
    cdef const Costs* a = <const Costs*> context
    cdef Py_ssize_t i, c, d = a.rows.d, start = a.start + chunk * CHUNK
    cdef double w
    cdef double* cost
    for i in range(start, min(a.stop, start + CHUNK)):
        cost = a.cost + (i - a.start) * a.room
        sc_squares(row_at(a.rows, i, a.space + slot * d), d, a.columns, a.room, a.room, cost)
        if a.rows.weight != NULL:
            w = a.rows.weight[i]
            for c in range(a.k):
                cost[c] *= w


cdef Py_ssize_t forward(
    const double* cost, Py_ssize_t k, double price, int state, double* above, uint64_t* moved
) noexcept nogil:
    """One row of the Viterbi recursion; returns the cheapest state: of several ``state``, else the first.

    state : what this gave for the row before, -1 for the first row of a sequence
    INOUT above (k,): what the best ways that end in each state cost more than the best of all
    OUT moved: a bit for each state, set where the best way comes from another one: staying would cost more than price
    """
    cdef Py_ssize_t c, least = 0
    cdef double before, best = HUGE_VAL
    for c in range(k):
        before = above[c]
        if state < 0:
            before = 0.0
        elif before > price:
            before = price
            moved[c // WORD] |= <uint64_t> 1 << (c % WORD)
        above[c] = before + cost[c]
    for c in range(k):
        if above[c] < best:
            best = above[c]
            least = c
    if state >= 0 and above[state] == best:
        least = state
    for c in range(k):
        above[c] -= best
    return least


def viterbi(X, const Py_ssize_t[::1] begin, const double[::1] weight, const double[:, ::1] centers, double price,
            int n_threads):
    """The labels z that minimize the sum of w ||x - c_z||^2 plus price for each row whose state is not that before it.

    Of labels that cost the same: from the last row of a sequence back, a row has the state of the row after it, else
    the cheapest of the rows up to it (of several that of the rows up to the one before, else the first).

    X : IN array (n, d), float32 or float64, any strides;  weight : IN array (n,), or None: 1 each
    begin : IN array (m + 1,), where sequences begin, ascending from 0, and n
    centers : IN array (k, d);  price : finite, >= 0
    """
    cdef Py_ssize_t i, j, c, q, start, stop, words, block, n = X.shape[0], d = X.shape[1], k = centers.shape[0]
    cdef Py_ssize_t room = (k + 7) // 8 * 8, sequences = begin.shape[0] - 1, work = 0
    cdef Rows rows = rows_of(X, weight, None)
    cdef Costs a
    if k == 0 or centers.shape[1] != d or not 0.0 <= price < HUGE_VAL:
        raise ValueError(f"centers must be some, of {d} columns, price >= 0, got {k} of {centers.shape[1]}, {price}")
    check_begin(begin, n)
    label_array = np.empty(n, dtype=np.int32)
    words, block = (k + WORD - 1) // WORD, max(<Py_ssize_t> CHUNK, BLOCK // room)
    cdef int[::1] label = label_array
    cdef double[:, ::1] columns = np.zeros((d, room))
    cdef double[:, ::1] space = np.empty((n_threads, d))
    cdef double[::1] cost = np.empty(min(n, block) * room)
    cdef double[::1] above = np.zeros(k)
    cdef uint64_t[:, ::1] moved = np.zeros((n, words), dtype=np.uint64)
    for c in range(k):
        for j in range(d):
            columns[j, c] = centers[c, j]
    a.rows, a.k, a.room, a.columns, a.space = &rows, k, room, &columns[0, 0], &space[0, 0]
    a.cost = &cost[0]
    with nogil:
        start = q = 0
        while start < n:  # label[i]: the cheapest state for the rows up to i
            stop = min(n, start + block)
            a.start, a.stop = start, stop
            run(cost_item, &a, 0, (stop - start + CHUNK - 1) // CHUNK,
                n_threads if (stop - start) * room * d >= PAYS else 1)
            for i in range(start, stop):
                while begin[q + 1] <= i:
                    q += 1
                label[i] = <int> forward(&cost[(i - start) * room], k, price, label[i - 1] if i > begin[q] else -1,
                                         &above[0], &moved[i, 0])
            poll_signals(&work, (stop - start) * room * d, WORK)
            start = stop
        for q in range(sequences):
            i = begin[q + 1] - 1
            c = label[i]
            while i > begin[q]:
                if not moved[i, c // WORD] >> (c % WORD) & 1:
                    label[i - 1] = <int> c
                c = label[i - 1]
                i -= 1
    return label_array


cdef check_begin(const Py_ssize_t[::1] begin, Py_ssize_t n):
    """Raise unless sequences are some, none of them empty, and all rows."""
    cdef Py_ssize_t q
    cdef bint right = begin.shape[0] > 1 and begin[0] == 0 and begin[begin.shape[0] - 1] == n
    for q in range(begin.shape[0] - 1):
        right = right and begin[q] < begin[q + 1]
    if not right:
        raise ValueError(f"begin must ascend from 0 to {n}, got {np.asarray(begin)}")


cdef int ascending(const void* a, const void* b) noexcept nogil:
    cdef double x = (<const double*> a)[0], y = (<const double*> b)[0]
    return (x > y) - (x < y)


cdef struct Openings:       # rows at which the last piece may begin; the columns of the sums are room apart
    Py_ssize_t size
    Py_ssize_t room
    Py_ssize_t d
    double* sums            # d x room: of w (x - origin) of the rows before
    double* squares         # of w ||x - origin||^2
    double* weights         # of w
    double* least           # the least cost of the rows before
    double* value           # that of all rows so far, where the last piece begins here
    double* scratch
    Py_ssize_t* row


cdef void keep(Openings* o, Py_ssize_t to, Py_ssize_t c) noexcept nogil:
    """Opening c is now number to."""
    cdef Py_ssize_t j
    for j in range(o.d):
        o.sums[j * o.room + to] = o.sums[j * o.room + c]
    o.squares[to], o.weights[to], o.least[to] = o.squares[c], o.weights[c], o.least[c]
    o.value[to], o.row[to] = o.value[c], o.row[c]


cdef void drop_above(Openings* o, double limit) noexcept nogil:
    """Forget openings whose value is not below the limit."""
    cdef Py_ssize_t c, kept = 0
    for c in range(o.size):
        if o.value[c] < limit:
            if kept < c:
                keep(o, kept, c)
            kept += 1
    o.size = kept


cdef void thin_out(Openings* o) noexcept nogil:
    """Of the older half of the openings, forget half: those of the higher values, of equal ones the later."""
    cdef Py_ssize_t c, kept = 0, old = o.size // 2, left = old // 2
    cdef double highest         # of those that stay
    cdef bint stays
    memcpy(o.scratch, o.value, old * sizeof(double))
    qsort(o.scratch, old, sizeof(double), ascending)
    highest = o.scratch[left - 1] if left > 0 else -HUGE_VAL
    for c in range(old):
        left -= o.value[c] < highest
    for c in range(o.size):     # left are now those equal to the highest
        stays = c >= old or o.value[c] < highest
        if not stays and o.value[c] == highest and left > 0:
            stays = True
            left -= 1
        if stays:
            if kept < c:
                keep(o, kept, c)
            kept += 1
    o.size = kept


def pieces(X, const Py_ssize_t[::1] begin, const double[::1] weight, const double[::1] origin, double price,
           Py_ssize_t most):
    """Where the pieces begin that minimize their squared errors about their own means plus price for each piece.

    By dynamic programming, where openings that can be the best no more are dropped (PELT). As long as no more than
    ``most`` openings are left at any row, this is the minimum; where there are more, half of the older half of them are
    given up, those that are the worst now. Of openings of equal value the first is taken.

    X : IN array (n, d), float32 or float64, any strides;  weight : IN array (n,), or None: 1 each
    begin : IN array (m + 1,), where sequences begin, ascending from 0, and n
    origin : IN array (d,), near the rows: what sums are taken from
    price : > 0;  most : >= 4
    """
    cdef Py_ssize_t i, j, c, q, best, high, n = X.shape[0], d = X.shape[1], room = most + 8, work = 0
    cdef Rows rows = rows_of(X, weight, None)
    cdef Openings o
    cdef double w, t, squared, squares, weights, least, limit
    if origin.shape[0] != d or not 0.0 < price < HUGE_VAL or most < 4:
        raise ValueError(f"origin must have {d} entries, price be > 0, most >= 4, got {price}, {most}")
    check_begin(begin, n)
    cdef Py_ssize_t[::1] last = np.zeros(n, dtype=np.intp)
    cdef Py_ssize_t[::1] row = np.empty(room, dtype=np.intp)
    cdef double[:, ::1] tables = np.empty((d + 5, room))
    cdef double[::1] x = np.empty(d)
    cdef double[::1] sums = np.empty(d)
    opens_array = np.zeros(n, dtype=bool)
    cdef unsigned char[::1] opens = opens_array.view(np.uint8)
    o.room, o.d, o.row = room, d, &row[0]
    o.sums, o.squares, o.weights = &tables[0, 0], &tables[d, 0], &tables[d + 1, 0]
    o.least, o.value, o.scratch = &tables[d + 2, 0], &tables[d + 3, 0], &tables[d + 4, 0]
    with nogil:
        for q in range(begin.shape[0] - 1):
            o.size = 0
            least = squares = weights = 0.0
            memset(&sums[0], 0, d * sizeof(double))
            for i in range(begin[q], begin[q + 1]):
                for j in range(d):
                    o.sums[j * room + o.size] = sums[j]
                o.squares[o.size], o.weights[o.size], o.least[o.size] = squares, weights, least
                o.row[o.size] = i
                o.size += 1
                read_row(&rows, i, &x[0], 1)
                w, squared = weight_of(&rows, i), 0.0
                for j in range(d):
                    t = x[j] - origin[j]
                    squared += t * t
                    sums[j] += w * t
                squares += w * squared
                weights += w
                sc_squares(&sums[0], d, o.sums, room, o.size, o.value)
                for c in range(o.size):
                    t = weights - o.weights[c]  # 0 where a heavy row before leaves nothing of light ones
                    o.value[c] = o.least[c] + ((squares - o.squares[c]) - (o.value[c] / t if t > 0.0 else 0.0))
                best = 0
                for c in range(o.size):
                    if o.value[c] < o.value[best]:
                        best = c
                last[i], least = o.row[best], o.value[best] + price
                limit, high = least, 0
                for c in range(o.size):
                    high += o.value[c] >= limit
                if 4 * high > o.size or (high and o.size >= most):
                    drop_above(&o, limit)
                if o.size >= most:
                    thin_out(&o)
                poll_signals(&work, (o.size + 8) * (d + 4), WORK)
            i = begin[q + 1]
            while i > begin[q]:
                i = last[i - 1]
                opens[i] = True
    return opens_array
