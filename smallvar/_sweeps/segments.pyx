"""Records cut into segments: the best states given the centers (`viterbi`), the best pieces without any (`pieces`).

Both are dynamic programming over the rows in their order.

`viterbi` finds states that minimize squared distances to their centers plus a price for each change of state. A block
of rows at a time, `compute_costs` computes the costs of all rows in all states, in parallel, as they do not depend on
each other; then `forward` takes one row after the other, by one thread. `trace_back` reads the states from the end.

`pieces` minimizes squared errors about the means of pieces plus a price for each piece, by one thread. For each row
`evaluate` finds the best among the candidates for the row at which the last piece begins, and `prune` drops candidates
that can be the best no more (PELT of Killick, Fearnhead & Eckley 2012).

The record is made of sequences: rows begin[q]..begin[q + 1] - 1 are one. A change of state from the end of a sequence
to the beginning of the next one costs nothing.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL
from libc.stdlib cimport qsort
from libc.string cimport memcpy, memset

from smallvar._sweeps.in_order cimport IN_ORDER_CHUNK, IN_ORDER_WORK
from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport Rows, poll_signals, read_row, row_at, rows_of, weight_of

import numpy as np

cdef extern from "_exact.h" nogil:
    void sc_squares(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, double*)

cdef extern from "_pieces.h" nogil:
    Py_ssize_t sp_best(double, double, const double*, const double*, const double*, Py_ssize_t, double*)
    Py_ssize_t sp_count(const double*, Py_ssize_t, double)

cdef extern from *:
    """
    #define SMALLVAR_REST 0.5
    #define SMALLVAR_VALUE_ROUNDING 0x1p-49
    """
    # of the price of a piece: candidates whose values exceed the least by that rest. Noise alone makes up for that
    # seldom, in the rows for which they do
    const double REST "SMALLVAR_REST"
    # of the sum of squares so far, times the columns and some: what values and the bound of their growth may be off by
    const double VALUE_ROUNDING "SMALLVAR_VALUE_ROUNDING"

cdef enum:
    BLOCK_COSTS = 1 << 16  # costs in memory at a time, of all states of a block of rows
    WORD = 8            # states in a word of bits
    MANY = 64           # candidates for the beginning of the last piece; fewer are all evaluated at each row


# ----------------------------------------------------------------------------------------------------------------------
# States, given the centers: viterbi


cdef struct SegmentCenters:
    Py_ssize_t k
    Py_ssize_t width        # k, rounded up to whole vectors; the centers from k on are 0
    double* columns         # d x width: the centers in columns


cdef void compute_chunk(
    const Rows* rows, const SegmentCenters* centers, Py_ssize_t start, Py_ssize_t stop, double* buffers, double* costs,
    Py_ssize_t chunk, int thread,
) noexcept nogil:
    """The part of `compute_costs` for one chunk of the rows start..stop-1."""
    cdef Py_ssize_t i, c, d = rows.d, first = start + chunk * IN_ORDER_CHUNK
    cdef double w
    cdef double* cost
    for i in range(first, min(stop, first + IN_ORDER_CHUNK)):
        cost = costs + (i - start) * centers.width
        sc_squares(row_at(rows, i, buffers + thread * d), d, centers.columns, centers.width, centers.width, cost)
        if rows.weight != NULL:
            w = rows.weight[i]
            for c in range(centers.k):
                cost[c] *= w


cdef void compute_costs(
    const Rows* rows, const SegmentCenters* centers, Py_ssize_t start, Py_ssize_t stop, double* buffers, double* costs,
    int threads,
) noexcept nogil:
    """Compute w ||x - c||^2 of the rows start..stop-1 and all centers.

    buffers : scratch (threads, d);  OUT costs (stop - start, width)
    """
    cdef Py_ssize_t chunk, n_chunks = (stop - start + IN_ORDER_CHUNK - 1) // IN_ORDER_CHUNK
    cdef bint pays = (stop - start) * centers.width * rows.d >= PAYS
    cdef ParallelLoop loop = begin_loop(n_chunks, threads if pays else 1)
    for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
        compute_chunk(rows, centers, start, stop, buffers, costs, chunk, begin_chunk(&loop))
    end_loop(&loop)


cdef Py_ssize_t forward(
    const double* cost, Py_ssize_t k, double price, int state, double* above, unsigned char* moved
) noexcept nogil:
    """Take one row of the Viterbi recursion; returns the cheapest state (of several ``state``, else the first).

    The cheapest path to state c comes from state c, which costs above[c] more than the cheapest path to the row before,
    or from the state in which that one ends, at ``price``. So it costs min(above[c], price) + cost[c] more than that.

    state : the cheapest state of the row before, -1 for the first row of a sequence
    INOUT above (k,): by how much the cheapest path that ends in each state costs more than the cheapest of all
    INOUT moved: a bit for each state, 0, set where the cheapest path comes from another state
    """
    cdef Py_ssize_t c, least = 0
    cdef double before, best = HUGE_VAL
    for c in range(k):
        before = above[c]
        if state < 0:
            before = 0.0        # a sequence begins in any state, without a price
        elif before > price:
            before = price
            moved[c // WORD] |= 1 << (c % WORD)
        above[c] = before + cost[c]
    for c in range(k):
        if above[c] < best:
            best = above[c]
            least = c
    if state >= 0 and above[state] == best:
        least = state
    # costs stay small beside the rounding of long sums, as only differences between states are kept
    for c in range(k):
        above[c] -= best
    return least


cdef void trace_back(
    Py_ssize_t begin, Py_ssize_t end, int* label, const unsigned char* moved, Py_ssize_t words
) noexcept nogil:
    """Set the labels of a sequence, from its last row back.

    INOUT label (n,): IN for each row the cheapest state of the rows up to it; a path that changes state after the row
        comes from that one.  OUT the states of the cheapest path
    IN moved (n, words): see `forward`
    """
    cdef Py_ssize_t i = end - 1
    cdef int c = label[i]
    while i > begin:
        if not moved[i * words + c // WORD] >> (c % WORD) & 1:
            label[i - 1] = c
        c = label[i - 1]
        i -= 1


def viterbi(X, const Py_ssize_t[::1] begin, const double[::1] weight, const double[:, ::1] centers, double price,
            int n_threads):
    """Labels z that minimize the sum of w ||x - c_z||^2 plus price for each row whose state is not that before it.

    Of labels that cost the same, from the last row of a sequence back: a row has the state of the row after it if that
    is among the best, else the cheapest state of the rows up to it (of several the one that was the cheapest of the
    rows up to the row before, else the first).

    X : IN array (n, d), float32 or float64, any strides;  weight : IN array (n,), or None: 1 each
    begin : IN array (m + 1,), where sequences begin, ascending from 0, and n
    centers : IN array (k, d);  price : finite, >= 0
    """
    cdef Py_ssize_t i, q = 0, start = 0, stop, block, n = X.shape[0], d = X.shape[1], k = centers.shape[0]
    # costs of whole vectors of states; those beyond k are never read
    cdef Py_ssize_t width = (k + 7) // 8 * 8, words = (k + WORD - 1) // WORD, work = 0
    cdef Rows rows = rows_of(X, weight, None)
    cdef SegmentCenters packed
    if k == 0 or centers.shape[1] != d or not 0.0 <= price < HUGE_VAL:
        raise ValueError(f"centers must be some, of {d} columns, price >= 0, got {k} of {centers.shape[1]}, {price}")
    check_begin(begin, n)
    block = max(<Py_ssize_t> 1, BLOCK_COSTS // width)
    label_array = np.empty(n, dtype=np.int32)
    cdef int[::1] label = label_array
    cdef double[:, ::1] columns = np.zeros((d, width)), buffers = np.empty((n_threads, d))
    cdef double[::1] costs = np.empty(min(n, block) * width), above = np.zeros(k)
    cdef unsigned char[:, ::1] moved = np.zeros((n, words), dtype=np.uint8)
    columns[:, :k] = centers.T
    packed.k, packed.width, packed.columns = k, width, &columns[0, 0]
    with nogil:
        while start < n:  # until trace_back, label[i] is the cheapest state of the rows up to i
            stop = min(n, start + block)
            compute_costs(&rows, &packed, start, stop, &buffers[0, 0], &costs[0], n_threads)
            for i in range(start, stop):
                while begin[q + 1] <= i:
                    q += 1
                label[i] = <int> forward(&costs[(i - start) * width], k, price, label[i - 1] if i > begin[q] else -1,
                                         &above[0], &moved[i, 0])
            poll_signals(&work, (stop - start) * width * d, IN_ORDER_WORK)
            start = stop
        for q in range(begin.shape[0] - 1):
            trace_back(begin[q], begin[q + 1], &label[0], &moved[0, 0], words)
    return label_array


cdef check_begin(const Py_ssize_t[::1] begin, Py_ssize_t n):
    """Raise ValueError unless there are sequences, none of them empty, that have all rows."""
    cdef Py_ssize_t q
    cdef bint right = begin.shape[0] > 1 and begin[0] == 0 and begin[begin.shape[0] - 1] == n
    for q in range(begin.shape[0] - 1):
        right = right and begin[q] < begin[q + 1]
    if not right:
        raise ValueError(f"begin must ascend from 0 to {n}, got {np.asarray(begin)}")


# ----------------------------------------------------------------------------------------------------------------------
# Pieces, without centers: pieces


cdef struct Prefix:         # the rows of a sequence so far
    double* sums            # d: sums of w (x - origin)
    double squares          # sum of w ||x - origin||^2
    double weight           # sum of w
    double least            # the least cost of cutting them into pieces


cdef struct Candidates:     # rows at which the last piece may begin, ascending
    Py_ssize_t size
    Py_ssize_t capacity
    Py_ssize_t d
    Py_ssize_t* row
    double* sums            # d x capacity: these four are the Prefix of the rows before the candidate
    double* squares
    double* weight
    double* least
    double* value           # least cost of all rows so far if the last piece begins here, without the price of that
    double* sorted_values   # scratch of thin_out


cdef void add_candidate(Candidates* candidates, const Prefix* prefix, Py_ssize_t row) noexcept nogil:
    """Add a candidate: the last piece may begin at this row, before which there are the rows of the prefix."""
    cdef Py_ssize_t j, c = candidates.size
    for j in range(candidates.d):
        candidates.sums[j * candidates.capacity + c] = prefix.sums[j]
    candidates.squares[c], candidates.weight[c] = prefix.squares, prefix.weight
    candidates.least[c], candidates.row[c] = prefix.least, row
    candidates.size += 1


cdef void add_row(Prefix* prefix, const double* x, double w, const double* origin, Py_ssize_t d) noexcept nogil:
    """Add a row x of weight w to the sums of the prefix; its least cost is not known yet."""
    cdef Py_ssize_t j
    cdef double difference, squared = 0.0
    for j in range(d):
        difference = x[j] - origin[j]
        squared += difference * difference
        prefix.sums[j] += w * difference
    prefix.squares += w * squared
    prefix.weight += w


cdef Py_ssize_t evaluate(Candidates* candidates, const Prefix* prefix) noexcept nogil:
    """Compute the values of all candidates at this prefix; returns the first that has the least.

    The squared error of a piece is sum w ||x - origin||^2 - ||sum w (x - origin)||^2 / sum w, and each of the three
    sums over the piece is a difference of prefixes.
    """
    sc_squares(prefix.sums, candidates.d, candidates.sums, candidates.capacity, candidates.size, candidates.value)
    return sp_best(prefix.squares, prefix.weight, candidates.squares, candidates.weight, candidates.least,
                   candidates.size, candidates.value)


cdef void keep(Candidates* candidates, Py_ssize_t to, Py_ssize_t c) noexcept nogil:
    """Copy candidate c to number ``to``."""
    cdef Py_ssize_t j
    if to == c:
        return
    for j in range(candidates.d):
        candidates.sums[j * candidates.capacity + to] = candidates.sums[j * candidates.capacity + c]
    candidates.squares[to], candidates.weight[to] = candidates.squares[c], candidates.weight[c]
    candidates.least[to], candidates.value[to] = candidates.least[c], candidates.value[c]
    candidates.row[to] = candidates.row[c]


cdef void drop_above(Candidates* candidates, double limit) noexcept nogil:
    """Drop the candidates whose value is not below the limit."""
    cdef Py_ssize_t c, kept = 0
    for c in range(candidates.size):
        if candidates.value[c] < limit:
            keep(candidates, kept, c)
            kept += 1
    candidates.size = kept


cdef int ascending(const void* a, const void* b) noexcept nogil:
    cdef double x = (<const double*> a)[0], y = (<const double*> b)[0]
    return (x > y or x != x) - (x < y or y != y)  # NaN last: qsort relies on an order


cdef void thin_out(Candidates* candidates) noexcept nogil:
    """Of the older half of the candidates, drop half: those of the higher values, of equal ones the later."""
    cdef Py_ssize_t c, kept = 0, old = candidates.size // 2, left = old // 2
    cdef double highest         # value of those that stay
    cdef double* value = candidates.value
    cdef bint stays
    memcpy(candidates.sorted_values, value, old * sizeof(double))
    qsort(candidates.sorted_values, old, sizeof(double), ascending)
    highest = candidates.sorted_values[left - 1] if left > 0 else -HUGE_VAL
    for c in range(old):
        left -= value[c] < highest
    # now ``left`` is how many of those equal to the highest stay
    for c in range(candidates.size):
        stays = c >= old or value[c] < highest
        if not stays and value[c] == highest and left > 0:
            stays = True
            left -= 1
        if stays:
            keep(candidates, kept, c)
            kept += 1
    candidates.size = kept


cdef void prune(Candidates* candidates, double least, Py_ssize_t most) noexcept nogil:
    """Drop candidates that can be the best no more, once they are many, and others if ``most`` are left or more.

    At any later row, a piece that begins after this one costs no more than one that goes on from a candidate whose
    value is not below the least cost of the rows so far: splitting a piece does not raise squared errors.
    """
    cdef Py_ssize_t high = sp_count(candidates.value, candidates.size, least)
    if 4 * high > candidates.size or (high and candidates.size >= most):
        drop_above(candidates, least)
    if candidates.size >= most:
        thin_out(candidates)


cdef struct Resting:        # candidates that are not evaluated for some rows, as they cannot be the best there
    double least            # the least of their values at the row at which they were last evaluated,
    Prefix then             # and the rows up to that one
    Py_ssize_t rows         # since then


cdef bint stay_behind(const Resting* resting, const Prefix* prefix, Py_ssize_t d, double best) noexcept nogil:
    """Whether all resting candidates have higher values than this best one of the others, at this prefix.

    The squared error of a piece is at least that of its first rows plus that of the others, each about a mean of its
    own: since they were evaluated, values have grown by the squared error of the rows since then or more.
    """
    cdef Py_ssize_t j
    cdef double difference, squared = 0.0, weight = prefix.weight - resting.then.weight, grown, rounding
    if not weight > 0.0:
        return False
    for j in range(d):
        difference = prefix.sums[j] - resting.then.sums[j]
        squared += difference * difference
    grown = (prefix.squares - resting.then.squares) - squared / weight
    rounding = VALUE_ROUNDING * (d + 8) * (prefix.squares + resting.least)
    return resting.least + grown - rounding > best


cdef void rest(
    const Candidates* candidates, Candidates* active, Resting* resting, const Prefix* prefix, double limit
) noexcept nogil:
    """Let the candidates rest, which were just evaluated, whose values are not below the limit.

    OUT active: the others; none of them where it does not pay, and all are to be evaluated at the next row.
    """
    cdef Py_ssize_t j, c, size = candidates.size, high = sp_count(candidates.value, size, limit)
    active.size = resting.rows = 0
    # where a heavy row leaves nothing of the weight of light ones, values do not only grow
    if size < MANY or 4 * (size - high) > size or not prefix.weight > candidates.weight[size - 1]:
        return
    resting.least, resting.then.squares, resting.then.weight = HUGE_VAL, prefix.squares, prefix.weight
    memcpy(resting.then.sums, prefix.sums, candidates.d * sizeof(double))
    for c in range(size):
        if candidates.value[c] < limit:
            for j in range(candidates.d):
                active.sums[j * active.capacity + active.size] = candidates.sums[j * candidates.capacity + c]
            active.squares[active.size], active.weight[active.size] = candidates.squares[c], candidates.weight[c]
            active.least[active.size], active.row[active.size] = candidates.least[c], candidates.row[c]
            active.size += 1
        elif candidates.value[c] < resting.least:
            resting.least = candidates.value[c]


cdef Py_ssize_t take_row(
    Candidates* candidates, Candidates* active, Resting* resting, Prefix* prefix, double price, Py_ssize_t most
) noexcept nogil:
    """Find the best candidate for the rows of the prefix, and set its least cost; returns where the last piece begins.

    The resting candidates are evaluated only if they could be better. INOUT candidates, active, resting
    OUT prefix.least
    """
    cdef Py_ssize_t best
    resting.rows += 1
    # about when the candidates that came since then have cost as much as to evaluate all
    if active.size and candidates.size < most and resting.rows * resting.rows < 2 * candidates.size:
        best = evaluate(active, prefix)
        if stay_behind(resting, prefix, active.d, active.value[best]):
            prefix.least = active.value[best] + price
            return active.row[best]
    best = evaluate(candidates, prefix)
    prefix.least = candidates.value[best] + price
    best = candidates.row[best]
    prune(candidates, prefix.least, most)
    rest(candidates, active, resting, prefix, prefix.least - REST * price)
    return best


cdef Candidates candidates_in(Py_ssize_t[::1] row, double[:, ::1] tables) noexcept nogil:
    """No candidates, in this memory: rows (capacity,) and d + 5 tables of that length."""
    cdef Candidates candidates
    cdef Py_ssize_t d = tables.shape[0] - 5
    candidates.size, candidates.capacity, candidates.d = 0, row.shape[0], d
    candidates.row, candidates.sums, candidates.squares = &row[0], &tables[0, 0], &tables[d, 0]
    candidates.weight, candidates.least = &tables[d + 1, 0], &tables[d + 2, 0]
    candidates.value, candidates.sorted_values = &tables[d + 3, 0], &tables[d + 4, 0]
    return candidates


def pieces(X, const Py_ssize_t[::1] begin, const double[::1] weight, const double[::1] origin, double price,
           Py_ssize_t most):
    """Flags of the rows at which pieces begin that minimize squared errors about their means plus price for each piece.

    By dynamic programming over the row at which the last piece begins, where candidates that can be the best no more
    are dropped. As long as no more than ``most`` of them are left at any row, this is the minimum; where there are
    more, half of the older half of them are given up, those that are the worst now. Of candidates of equal value the
    first is taken. Those whose values are far from the least are not evaluated for some rows.

    X : IN array (n, d), float32 or float64, any strides;  weight : IN array (n,), or None: 1 each
    begin : IN array (m + 1,), where sequences begin, ascending from 0, and n
    origin : IN array (d,), near the rows: what sums are taken from
    price : > 0;  most : >= 4
    """
    cdef Py_ssize_t i, q, n = X.shape[0], d = X.shape[1], capacity = most + 8, work = 0
    cdef Rows rows = rows_of(X, weight, None)
    cdef Candidates candidates, active
    cdef Resting resting
    cdef Prefix prefix
    if origin.shape[0] != d or not 0.0 < price < HUGE_VAL or most < 4:
        raise ValueError(f"origin must have {d} entries, price be > 0, most >= 4, got {price}, {most}")
    check_begin(begin, n)
    cdef Py_ssize_t[::1] last = np.zeros(n, dtype=np.intp)  # for the rows up to each, where the last piece begins
    cdef Py_ssize_t[:, ::1] row = np.empty((2, capacity), dtype=np.intp)
    cdef double[:, :, ::1] tables = np.empty((2, d + 5, capacity))
    cdef double[:, ::1] vectors = np.empty((3, d))
    cdef double* x = &vectors[0, 0]
    opens_array = np.zeros(n, dtype=bool)
    cdef unsigned char[::1] opens = opens_array.view(np.uint8)
    candidates, active = candidates_in(row[0], tables[0]), candidates_in(row[1], tables[1])
    prefix.sums, resting.then.sums = &vectors[1, 0], &vectors[2, 0]
    with nogil:
        for q in range(begin.shape[0] - 1):
            candidates.size = active.size = resting.rows = 0
            prefix.squares = prefix.weight = prefix.least = 0.0
            memset(prefix.sums, 0, d * sizeof(double))
            for i in range(begin[q], begin[q + 1]):
                add_candidate(&candidates, &prefix, i)
                if active.size:
                    add_candidate(&active, &prefix, i)
                read_row(&rows, i, x, 1)
                add_row(&prefix, x, weight_of(&rows, i), &origin[0], d)
                last[i] = take_row(&candidates, &active, &resting, &prefix, price, most)
                poll_signals(&work, (candidates.size + 8) * (d + 4), IN_ORDER_WORK)
            # from the end of the sequence back: the piece before ends where the last one begins
            i = begin[q + 1]
            while i > begin[q]:
                i = last[i - 1]
                opens[i] = True
    return opens_array
